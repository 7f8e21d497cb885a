import { encodeHex } from '../bytes.ts'
import type { DerNode } from './der.ts'
import { DER_TAGS, decodeObjectIdentifier, latin1 } from './der-value.ts'

/** A distinguished name (RFC 5280 section 4.1.2.4). Names are equal when `encoding` is. */
export type DistinguishedName = {
  readonly encoding: Uint8Array<ArrayBuffer>
  /** One line for people, in the order of the encoding, e.g. `C=US, O=Amazon, CN=aws.nitro-enclaves`. */
  readonly text: string
  /** Null when there is none, or more than one. */
  readonly commonName: string | null
}

/** Gives the name in a DER node, or null when the node has not the form of a Name. */
export function parseName(node: DerNode): DistinguishedName | null {
  if (node.tag !== DER_TAGS.sequence) return null
  const attributes: Attribute[] = []
  for (const set of node.children) {
    if (set.tag !== DER_TAGS.set || set.children.length === 0) return null
    for (const child of set.children) {
      const attribute = parseAttribute(child)
      if (attribute === null) return null
      attributes.push(attribute)
    }
  }
  const commonNames = attributes.filter(({ type }) => type === 'CN')
  return {
    encoding: node.encoding,
    text: attributes.map(({ type, value }) => `${type}=${value}`).join(', '),
    commonName: commonNames.length === 1 ? (commonNames[0]?.value ?? null) : null,
  }
}

type Attribute = { readonly type: string; readonly value: string }

const SHORT_TYPES: Readonly<Record<string, string>> = {
  '2.5.4.3': 'CN',
  '2.5.4.6': 'C',
  '2.5.4.7': 'L',
  '2.5.4.8': 'ST',
  '2.5.4.10': 'O',
  '2.5.4.11': 'OU',
}

const utf8 = new TextDecoder('utf-8', { ignoreBOM: true })

function parseAttribute({ tag, children }: DerNode): Attribute | null {
  const [type, value] = children
  const isPair = tag === DER_TAGS.sequence && children.length === 2
  if (!isPair || type?.tag !== DER_TAGS.objectIdentifier || !value) return null
  const identifier = decodeObjectIdentifier(type.content)
  return { type: SHORT_TYPES[identifier] ?? identifier, value: textOf(value) }
}

/** Control characters, which could forge a line on a terminal, and other string types are shown as hex. */
function textOf({ tag, content, encoding }: DerNode): string {
  const isText = tag === DER_TAGS.utf8String || tag === DER_TAGS.printableString || tag === DER_TAGS.ia5String
  const text = tag === DER_TAGS.utf8String ? utf8.decode(content) : isText ? latin1(content) : ''
  return isText && !/\p{Cc}|\p{Cf}/u.test(text) ? text : `#${encodeHex(encoding)}`
}
