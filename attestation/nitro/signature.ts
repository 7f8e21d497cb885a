import { concatBytes } from '../bytes.ts'
import { AttestationError } from './attestation-error.ts'
import type { CoseSign1 } from './cose.ts'
import { isSignatureInRange, type P384Key, verifyP384 } from './p384.ts'

/**
 * Verifies that the holder of `key` signed the received protected header and payload (rule 20; RFC 9052 section 4.4).
 * It proves nothing about who holds the key: that is the chain's part. Throws AttestationError.
 */
export async function verifySignature(cose: CoseSign1, key: P384Key): Promise<void> {
  if (!isSignatureInRange(cose.signature)) {
    throw new AttestationError('signature_out_of_range', 'expected r and s from 1 to n-1')
  }
  const holds = await verifyP384({ key, signature: cose.signature, data: signedBytes(cose) })
  if (!holds) throw new AttestationError('signature_invalid', "expected a signature by the leaf's key")
}

/** Sig_structure ["Signature1", protected, h'', payload] over the bytes as they came, never a re-encoding. */
function signedBytes({ protectedHeader, payload }: CoseSign1): Uint8Array<ArrayBuffer> {
  const parts = [
    SIGNATURE1,
    byteStringHead(protectedHeader.length),
    protectedHeader,
    EMPTY_BYTE_STRING,
    byteStringHead(payload.length),
    payload,
  ]
  return new Uint8Array(concatBytes(...parts))
}

/** An array of four, then the text "Signature1" with its head. */
const SIGNATURE1 = Uint8Array.from([0x84, 0x6a, ...new TextEncoder().encode('Signature1')])
const EMPTY_BYTE_STRING = Uint8Array.of(0x40)

/** Minimal head of a byte string below 64 KiB. */
function byteStringHead(length: number): Uint8Array {
  if (length < 24) return Uint8Array.of(0x40 + length)
  if (length < 0x100) return Uint8Array.of(0x58, length)
  return Uint8Array.of(0x59, length >> 8, length & 0xff)
}
