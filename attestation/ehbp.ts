import { FormatError } from './errors.ts'

/*
 * The parts of EHBP (the Encrypted HTTP Body Protocol) that both ends of an encrypted call use:
 * names, frames and nonces, but no cryptography.
 */

/** HPKE `info` for the context of a request, and for the context of a sealed credential. */
export const REQUEST_INFO = 'ehbp request'
export const CREDENTIAL_INFO = 'affidavit credential'

/** The exporter context for the secret of an answer. The secret has 32 bytes. */
export const RESPONSE_EXPORT = 'ehbp response'

/** Labels for the keys that are derived from the secret (RFC 9458 section 4.4). */
export const RESPONSE_KEY_LABEL = 'key'
export const RESPONSE_NONCE_LABEL = 'nonce'

/** Header with the encapsulated key, 64 lower-case hex digits. It marks an encrypted call. */
export const ENCAPSULATED_KEY_HEADER = 'ehbp-encapsulated-key'
/** Header of an answer with its nonce: 32 random bytes, as 64 lower-case hex digits. */
export const RESPONSE_NONCE_HEADER = 'ehbp-response-nonce'
/** Header with the notary whose key encrypts the call: 0x, lower case. */
export const NOTARY_HEADER = 'affidavit-notary'
/** Header with the most tokens that all answers to an encrypted call may have: a whole number. */
export const ANSWER_TOKENS_HEADER = 'affidavit-answer-tokens'

/** `type` of the problem that a server reports if it does not have the call's key. */
export const KEY_CONFIG_PROBLEM = 'urn:ietf:params:ehbp:error:key-config'

/** Sizes in bytes: the length (big-endian) before a frame, a nonce, and an AES-GCM tag. */
export const FRAME_LENGTH_BYTES = 4
export const GCM_NONCE_BYTES = 12
export const GCM_TAG_BYTES = 16

/** A frame is the length of a ciphertext, then the ciphertext. */
export function writeFrame(ciphertext: Uint8Array): Uint8Array<ArrayBuffer> {
  const frame = new Uint8Array(FRAME_LENGTH_BYTES + ciphertext.length)
  new DataView(frame.buffer).setUint32(0, ciphertext.length)
  frame.set(ciphertext, FRAME_LENGTH_BYTES)
  return frame
}

/** XOR of a base nonce and a counter (RFC 9180 section 5.2, same in RFC 9458). */
export function nonceAt(baseNonce: Uint8Array, sequence: number): Uint8Array<ArrayBuffer> {
  const nonce = new Uint8Array(baseNonce)
  const view = new DataView(nonce.buffer)
  const at = nonce.length - 8
  view.setBigUint64(at, view.getBigUint64(at) ^ BigInt(sequence))
  return nonce
}

/**
 * Splits a body, which arrives in parts of any size, into the ciphertexts of its frames. Skips
 * frames of length 0. `lengthMax`: the maximum bytes of one ciphertext. Throws FormatError
 * `invalid_frame`. An incomplete frame is kept in one array: a list of one-byte parts would take a
 * hundred times as much memory.
 */
export function createFrameReader(lengthMax: number) {
  let held = new Uint8Array(FRAME_LENGTH_BYTES)
  let heldLength = 0
  let wanted: number | null = null

  function hold(bytes: Uint8Array): void {
    const length = heldLength + bytes.length
    if (length > held.length) {
      const larger = new Uint8Array(Math.max(length, Math.min(2 * held.length, wanted ?? 0)))
      larger.set(held.subarray(0, heldLength))
      held = larger
    }
    held.set(bytes, heldLength)
    heldLength = length
  }

  return {
    *push(bytes: Uint8Array): Generator<Uint8Array> {
      let at = 0
      for (;;) {
        const needed = wanted ?? FRAME_LENGTH_BYTES
        const end = at + needed - heldLength
        if (end > bytes.length) {
          hold(bytes.subarray(at))
          return
        }
        let part = bytes.subarray(at, end)
        if (heldLength > 0) {
          hold(part)
          part = held.subarray(0, needed)
          held = new Uint8Array(FRAME_LENGTH_BYTES)
          heldLength = 0
        }
        at = end
        if (wanted === null) {
          const length = new DataView(part.buffer, part.byteOffset).getUint32(0)
          if (length > lengthMax)
            throw new FormatError('invalid_frame', `expected frames of at most ${lengthMax} bytes`)
          wanted = length === 0 ? null : length
        } else {
          wanted = null
          yield part
        }
      }
    },
    end(): void {
      if (wanted !== null || heldLength > 0)
        throw new FormatError('invalid_frame', 'expected the last frame to be whole')
    },
  }
}
