import { encodeHex } from '../../bytes.ts'
import type { CertificateFields } from '../../nitro/certificate.ts'
import { DER_TAGS, type DerNode, decodeObjectIdentifier } from '../../nitro/der.ts'
import { tryDecodeDer } from '../try-decode-der.ts'
import { refuseReport } from './snp-rules.ts'

/**
 * DER, in hex, of RSASSA-PSS with SHA-384, MGF1 with SHA-384 and 48 bytes of salt (RFC 4055 section
 * 3.1). AMD's authorities also write the default trailer field, which DER forbids.
 */
const SHA384 = '300d06096086480165030402020500'
const MGF1 = `301a06092a864886f70d010108${SHA384}`
const PARAMETERS = `a00f${SHA384}a11c${MGF1}a203020130`
const PSS_SHA384: ReadonlySet<string> = new Set([
  `304106092a864886f70d01010a3034${PARAMETERS}`,
  `304606092a864886f70d01010a3039${PARAMETERS}a303020101`,
])

/** True for RSASSA-PSS with exactly the parameters that AMD uses. */
export function isPssSha384(algorithm: DerNode | undefined): boolean {
  return algorithm !== undefined && PSS_SHA384.has(encodeHex(algorithm.encoding))
}

const RSA_ENCRYPTION = '1.2.840.113549.1.1.1'
const MODULUS_BYTES = 512
const EXPONENT = '010001'

/** Requires an RSA key of AMD's size. Throws ProviderEvidenceError. */
export function checkRsaKey(publicKey: DerNode, where: string): void {
  const [algorithm, bits] = publicKey.children
  const [type, parameters] = algorithm?.children ?? []
  if (
    type?.tag !== DER_TAGS.objectIdentifier ||
    decodeObjectIdentifier(type.content) !== RSA_ENCRYPTION
  )
    throw refuseReport('certificate_key_type', `${where}: expected an RSA key`)
  const [modulus, exponent] = bits?.tag === DER_TAGS.bitString ? keyNumbers(bits) : []
  const isWhole =
    publicKey.children.length === 2 &&
    algorithm?.children.length === 2 &&
    parameters?.tag === DER_TAGS.null
  // DER puts a zero byte before a modulus whose highest bit is set.
  const hasSize =
    modulus?.content.length === MODULUS_BYTES + 1 &&
    modulus.content[0] === 0 &&
    ((modulus.content.at(-1) ?? 0) & 1) === 1
  if (!isWhole || !hasSize || encodeHex(exponent?.content ?? new Uint8Array()) !== EXPONENT)
    throw refuseReport(
      'certificate_rsa_key',
      `${where}: expected a modulus of 4096 bits and the exponent 65537`,
    )
}

function keyNumbers({ content }: DerNode): readonly DerNode[] {
  const node = content[0] === 0 ? tryDecodeDer(content.subarray(1)) : null
  const isPair = node?.tag === DER_TAGS.sequence && node.children.length === 2
  return isPair ? node.children.filter(({ tag }) => tag === DER_TAGS.integer) : []
}

/** Caches imported keys, because an ARK's key verifies many chains and lists. */
const keys = new WeakMap<CertificateFields, ReturnType<typeof importPssKey>>()

function importPssKey({ publicKey: { encoding } }: CertificateFields) {
  return globalThis.crypto.subtle.importKey('spki', encoding, KEY_ALGORITHM, false, ['verify'])
}

/**
 * True if the key of `issuer` made the signature: RSASSA-PSS, SHA-384, MGF1 with SHA-384, exactly
 * 48 bytes of salt (RFC 8017 section 8.1.2). Also false if WebCrypto refuses the input.
 */
export async function verifyPss(
  issuer: CertificateFields,
  {
    signature,
    signed,
  }: {
    readonly signature: Uint8Array<ArrayBuffer>
    readonly signed: Uint8Array<ArrayBuffer>
  },
): Promise<boolean> {
  try {
    const key = keys.get(issuer) ?? importPssKey(issuer)
    keys.set(issuer, key)
    const { subtle } = globalThis.crypto
    return await subtle.verify(SIGNATURE_ALGORITHM, await key, signature, signed)
  } catch {
    keys.delete(issuer)
    return false
  }
}

const KEY_ALGORITHM = { name: 'RSA-PSS', hash: 'SHA-384' } as const
const SIGNATURE_ALGORITHM = { name: 'RSA-PSS', saltLength: 48 } as const
