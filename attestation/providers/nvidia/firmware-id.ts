import { DER_TAGS, type DerNode, decodeObjectIdentifier } from '../../nitro/der.ts'
import { tryDecodeDer } from '../try-decode-der.ts'

/** TCG DICE, 6.1. Hopper's leaves have the composite id. Blackwell's leaves have the TcbInfo. */
const COMPOSITE_ID = '2.23.133.5.4.1'
const TCB_INFO = '2.23.133.5.4.1.1'
const SHA384 = '2.16.840.1.101.3.4.2.2'
const FIRMWARE_IDS_FIELD = 0xa6

export function isDiceExtension(type: string): boolean {
  return type === COMPOSITE_ID || type === TCB_INFO
}

/**
 * Returns the SHA-384 digests of firmware in a leaf's DICE extension. Empty if the extension is
 * missing or has another form.
 */
export function firmwareIdsOf(
  values: ReadonlyMap<string, Uint8Array<ArrayBuffer>>,
): readonly Uint8Array[] {
  const composite = childrenOf(values.get(COMPOSITE_ID))
  const fields = childrenOf(values.get(TCB_INFO)).filter(({ tag }) => tag === FIRMWARE_IDS_FIELD)
  const ids =
    composite.length === 3 ? composite.slice(2) : fields.flatMap(({ children }) => children)
  return ids.flatMap(digestOf)
}

function childrenOf(value: Uint8Array<ArrayBuffer> | undefined): readonly DerNode[] {
  const node = value && tryDecodeDer(value)
  return node?.tag === DER_TAGS.sequence ? node.children : []
}

/** FWID: an algorithm and a digest. */
function digestOf({ tag, children }: DerNode): readonly Uint8Array[] {
  const [algorithm, digest, ...rest] = children
  const isDigest =
    tag === DER_TAGS.sequence &&
    algorithm?.tag === DER_TAGS.objectIdentifier &&
    decodeObjectIdentifier(algorithm.content) === SHA384 &&
    digest?.tag === DER_TAGS.octetString &&
    rest.length === 0
  return isDigest ? [digest.content] : []
}
