import { decodeBase64Url, decodeHex } from '../bytes.ts'
import { FormatError } from '../errors.ts'
import { attempt } from '../finding.ts'
import { AttestationError } from '../nitro/attestation-error.ts'
import { DOCUMENT_BYTES_MAX } from '../nitro/cose.ts'
import { type AttestationDocument, decodeAttestationPayload } from '../nitro/document.ts'
import { type AttestationFacts, outcomesOfRefusal, type RuleOutcome } from '../nitro/facts.ts'
import { type AttestationPolicy, resolvePolicy } from '../nitro/policy.ts'
import type { AttestationVerifier } from '../nitro/verify-attestation.ts'
import { nameFormat } from './name-format.ts'

export type DocumentJudgement =
  | { readonly valid: true; readonly facts: AttestationFacts }
  | {
      readonly valid: false
      readonly error: AttestationError
      readonly rules: readonly RuleOutcome[]
      /** The unproved claims of the document. Null if the document cannot be read. */
      readonly claims: AttestationDocument | null
    }

/** Throws PolicyError, and other errors of `verifier`. */
export async function judgeDocument(
  document: Uint8Array,
  demands: {
    readonly policy: AttestationPolicy
    readonly verifier: AttestationVerifier
    readonly at: Date
  },
): Promise<DocumentJudgement> {
  const { policy, verifier, at } = demands
  try {
    return { valid: true, facts: await verifier.verify(document, policy, at) }
  } catch (error) {
    if (!(error instanceof AttestationError)) throw error
    const read = attempt(() => decodeAttestationPayload(document))
    return {
      valid: false,
      error,
      rules: outcomesOfRefusal(error, resolvePolicy(policy)),
      claims: 'value' in read ? read.value : null,
    }
  }
}

/** The longest text form of a document is hex with white space between the digits. */
const DOCUMENT_TEXT_BYTES_MAX = 4 * DOCUMENT_BYTES_MAX

/**
 * Accepts binary, hex (with or without 0x) and base64 (standard or URL-safe, padded or not), and
 * ignores white space in text. These forms cannot be confused: a binary document starts with 84 or
 * d2, and text never does. Base64 of a document starts with `hE` or `0o`, and hex never does.
 * Returns other binary content and an empty file unchanged. Throws FormatError `wrapped_document`
 * for a document inside other text (in quotes, in JSON, after a byte order mark), and for other
 * text.
 */
export function decodeDocumentFile(bytes: Uint8Array): Uint8Array {
  if (bytes.length === 0 || beginsDocument(bytes)) return bytes
  const wrapping = findWrapping(bytes)
  if (wrapping !== null) throw wrapped(wrapping)
  if (bytes.length > DOCUMENT_TEXT_BYTES_MAX || !isText(bytes)) return bytes
  const document = decodeText(new TextDecoder().decode(bytes).replaceAll(/\s/g, ''))
  if (document !== null && beginsDocument(document)) return document
  throw wrapped('text that is neither hex nor base64 of a document')
}

function wrapped(found: string): FormatError {
  return new FormatError(
    'wrapped_document',
    `expected the bytes of a document, or only their hex or base64, got ${found}`,
  )
}

function beginsDocument([first]: Uint8Array): boolean {
  return first === 0x84 || first === 0xd2
}

/** Null for text that is neither hex nor base64. */
function decodeText(text: string): Uint8Array | null {
  if (/^(0x)?([0-9a-f]{2})+$/i.test(text)) return decodeHex(text.replace(/^0X/, '0x'))
  const url = text.replaceAll('+', '-').replaceAll('/', '_').replace(/=+$/, '')
  const read = attempt(() => decodeBase64Url(url))
  return 'value' in read ? read.value : null
}

/** Describes what surrounds a document. Null if nothing surrounds it. */
function findWrapping(bytes: Uint8Array): string | null {
  const format = nameFormat(bytes)
  if (format !== null) return format
  const text = new TextDecoder().decode(bytes).trim()
  const quote = /^["'`]/.exec(text)?.[0]
  if (quote !== undefined) return `text in quotes (${quote})`
  if (/^[{[]/.test(text)) return `JSON${memberWords(text)}`
  if (text.startsWith('-----BEGIN')) return 'PEM'
  return null
}

/** Names the member of JSON whose value looks like a document, in base64, hex or numbers. */
function memberWords(text: string): string {
  const name = /"([\w-]{1,64})"\s*:\s*"(?:hE|0o|(?:0x)?(?:84|[dD]2))[\w+/=\\-]{100,}/.exec(
    text,
  )?.[1]
  if (name !== undefined) return `: give the value of its member ${name}`
  return /\[\s*(?:210\s*,\s*)?132\s*,\s*\d/.test(text)
    ? ': give the numbers of its list as bytes'
    : ''
}

/** True for printable ASCII and white space. */
function isText(bytes: Uint8Array): boolean {
  return bytes.every((byte) => (byte >= 0x20 && byte < 0x7f) || (byte >= 0x09 && byte <= 0x0d))
}
