import { AttestationError } from './attestation-error.ts'
import type { Certificate } from './certificate.ts'
import { DerError, type DerNode, decodeDer } from './der.ts'
import { DER_TAGS } from './der-value.ts'
import { isSignatureInRange } from './p384.ts'

/**
 * Gives r || s (96 bytes) of a certificate's signature, from the DER of ECDSA-Sig-Value (RFC 3279 section 2.2.3), with
 * both in range. Verifies nothing. Throws AttestationError.
 */
export function parseCertificateSignature({ signature, where }: Certificate): Uint8Array<ArrayBuffer> {
  const scalars = decodeSequence(signature)
  const pair = new Uint8Array(2 * SCALAR_BYTES)
  for (const [index, scalar] of scalars.entries()) {
    const digits = scalarOf(scalar)
    if (digits !== null) pair.set(digits, (index + 1) * SCALAR_BYTES - digits.length)
  }
  if (scalars.length !== 2 || scalars.some((node) => scalarOf(node) === null) || !isSignatureInRange(pair)) {
    const message = `${where}: expected a signature of two integers from 1 to n-1 in DER`
    throw new AttestationError('certificate_signature_malformed', message)
  }
  return pair
}

const SCALAR_BYTES = 48

function decodeSequence(signature: Uint8Array<ArrayBuffer>): readonly DerNode[] {
  try {
    const node = decodeDer(signature)
    return node.tag === DER_TAGS.sequence && node.children.length === 2 ? node.children : []
  } catch (error) {
    if (error instanceof DerError) return []
    throw error
  }
}

/** Big-endian digits without leading zeros; null for what is negative, too long or no INTEGER. */
function scalarOf({ tag, content }: DerNode): Uint8Array | null {
  if (tag !== DER_TAGS.integer || (content[0] ?? 0x80) >= 0x80) return null
  const digits = content[0] === 0 ? content.subarray(1) : content
  return digits.length > SCALAR_BYTES ? null : digits
}
