import { decodeBase64, decodeHex } from '../bytes.ts'
import { attempt } from '../finding.ts'
import { AttestationError } from '../nitro/attestation-error.ts'
import { DOCUMENT_BYTES_MAX } from '../nitro/cose.ts'
import { type AttestationDocument, decodeAttestationPayload } from '../nitro/document.ts'
import { type AttestationFacts, outcomesOfRefusal, type RuleOutcome } from '../nitro/facts.ts'
import { type AttestationPolicy, resolvePolicy } from '../nitro/policy.ts'
import type { AttestationVerifier } from '../nitro/verify-attestation.ts'

/** What became of one attestation document. */
export type DocumentJudgement =
  | { readonly valid: true; readonly facts: AttestationFacts }
  | {
      readonly valid: false
      readonly error: AttestationError
      readonly rules: readonly RuleOutcome[]
      /** What it says: none of it is established. Null when it cannot be read. */
      readonly claims: AttestationDocument | null
    }

/** Judges a document at a time. Throws PolicyError, and whatever `verifier` throws beside. */
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

/** Longest text that can hold a document: hex with white space between the digits' lines. */
const DOCUMENT_TEXT_BYTES_MAX = 4 * DOCUMENT_BYTES_MAX

/**
 * Gives the binary attestation document of a file that holds it as it is, in hex (with or without
 * 0x) or in base64 (standard or URL-safe, padded or not); white space in text does not matter. No
 * reading is ambiguous: a document starts with 84 or d2, which is no text, and in base64 with `hE`
 * or `0o`, which is no hex. What is neither text is given unchanged, for the validator to refuse.
 */
export function decodeDocumentFile(bytes: Uint8Array): Uint8Array {
  if (bytes.length > DOCUMENT_TEXT_BYTES_MAX || !isText(bytes)) return bytes
  const text = new TextDecoder().decode(bytes).replaceAll(/\s/g, '')
  if (/^(0x)?([0-9a-f]{2})+$/i.test(text)) return decodeHex(text.replace(/^0X/, '0x'))
  const standard = text.replaceAll('-', '+').replaceAll('_', '/').replace(/=+$/, '')
  try {
    return decodeBase64(standard.padEnd(Math.ceil(standard.length / 4) * 4, '='))
  } catch {
    return bytes
  }
}

function isText(bytes: Uint8Array): boolean {
  return bytes.length > 0 && bytes.every((byte) => byte < 0x7f)
}
