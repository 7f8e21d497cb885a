import { AttestationError } from './attestation-error.ts'
import { DerError, type DerNode, decodeDer } from './der.ts'
import { DER_TAGS, decodeObjectIdentifier } from './der-value.ts'

/** basicConstraints (RFC 5280 section 4.2.1.9). */
export type BasicConstraints = {
  readonly critical: boolean
  readonly ca: boolean
  readonly pathLength: number | null
}

/** The bits of keyUsage (RFC 5280 section 4.2.1.3) that documents depend on. */
export type KeyUsage = { readonly digitalSignature: boolean; readonly keyCertSign: boolean }

/** What of a certificate's extensions is understood; null where the extension is absent. */
export type Extensions = {
  readonly basicConstraints: BasicConstraints | null
  readonly keyUsage: KeyUsage | null
}

/**
 * Gives the extensions in the [3] field of a certificate; `where` names the certificate in messages. Each type may
 * occur once, and a critical one must be understood, so name constraints and policies refuse. Throws AttestationError.
 */
export function parseExtensions(field: DerNode | undefined, where: string): Extensions {
  const found = new Map<string, Extension>()
  for (const node of field === undefined ? [] : sequenceIn(field, where)) {
    const extension = parseExtension(node, where)
    if (found.has(extension.type)) {
      throw new AttestationError(
        'certificate_duplicate_extension',
        `${where}: ${extension.type} occurs twice`,
      )
    }
    if (extension.critical && !UNDERSTOOD.has(extension.type)) {
      const message = `${where}: critical extension ${extension.type} is not understood`
      throw new AttestationError('certificate_critical_extension', message)
    }
    found.set(extension.type, extension)
  }
  const constraints = found.get(BASIC_CONSTRAINTS)
  const usage = found.get(KEY_USAGE)
  return {
    basicConstraints: constraints ? parseBasicConstraints(constraints, where) : null,
    keyUsage: usage ? parseKeyUsage(usage, where) : null,
  }
}

/** The refusal of a certificate that is not in the form of RFC 5280. */
export function refuseDer(where: string, expected: string): AttestationError {
  return new AttestationError('certificate_der', `${where}: expected ${expected}`)
}

/** Decodes the whole of `bytes` as DER, as one field of the certificate `where`. Throws AttestationError. */
export function decodeDerOf(bytes: Uint8Array<ArrayBuffer>, where: string): DerNode {
  try {
    return decodeDer(bytes)
  } catch (error) {
    if (error instanceof DerError) throw new AttestationError('certificate_der', `${where}: ${error.message}`)
    throw error
  }
}

const BASIC_CONSTRAINTS = '2.5.29.19'
const KEY_USAGE = '2.5.29.15'
const UNDERSTOOD: ReadonlySet<string> = new Set([BASIC_CONSTRAINTS, KEY_USAGE])

type Extension = { readonly type: string; readonly critical: boolean; readonly value: DerNode }

function sequenceIn({ children }: DerNode, where: string): readonly DerNode[] {
  const [sequence] = children
  if (children.length !== 1 || sequence?.tag !== DER_TAGS.sequence || sequence.children.length === 0) {
    throw refuseDer(where, 'a sequence of extensions that is not empty')
  }
  return sequence.children
}

function parseExtension({ tag, children }: DerNode, where: string): Extension {
  const [type, ...rest] = children
  const flag = rest.length === 2 ? rest[0] : undefined
  const value = rest.at(-1)
  const isExtension = tag === DER_TAGS.sequence && rest.length >= 1 && rest.length <= 2
  if (!isExtension || type?.tag !== DER_TAGS.objectIdentifier || value?.tag !== DER_TAGS.octetString) {
    throw refuseDer(where, 'each extension to be a type, perhaps critical, and a value')
  }
  if (flag && !isTrue(flag)) throw refuseDer(where, 'critical to be TRUE, or absent as its default')
  return {
    type: decodeObjectIdentifier(type.content),
    critical: flag !== undefined,
    value: decodeDerOf(value.content, where),
  }
}

function isTrue({ tag, content }: DerNode): boolean {
  return tag === DER_TAGS.boolean && content[0] === 0xff
}

function parseBasicConstraints({ critical, value }: Extension, where: string): BasicConstraints {
  const [flag, length, ...rest] = value.children
  if (value.tag !== DER_TAGS.sequence || rest.length > 0 || (flag && !isTrue(flag))) {
    throw refuseDer(where, 'basicConstraints of cA TRUE or nothing, and perhaps a path length')
  }
  if (length === undefined) return { critical, ca: flag !== undefined, pathLength: null }
  const [digit = 0x80] = length.content
  if (length.tag !== DER_TAGS.integer || length.content.length > 1 || digit >= 0x80) {
    throw refuseDer(where, 'a path length from 0 to 127')
  }
  return { critical, ca: true, pathLength: digit }
}

/** decipherOnly, the last bit that has a name. */
const NINTH_BIT = 0x80

function parseKeyUsage({ value }: Extension, where: string): KeyUsage {
  const [unused = 0, first = 0, second] = value.content
  const last = value.content.at(-1) ?? 0
  const isNamedBits = value.content.length >= 2 && ((last >> unused) & 1) === 1
  const isWithinNine = value.content.length === 2 || (value.content.length === 3 && second === NINTH_BIT)
  if (value.tag !== DER_TAGS.bitString || !isNamedBits || !isWithinNine) {
    throw refuseDer(where, 'keyUsage of one to nine bits without trailing zeros')
  }
  return { digitalSignature: (first & 0x80) !== 0, keyCertSign: (first & 0x04) !== 0 }
}
