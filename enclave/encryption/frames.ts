import { createCipheriv } from 'node:crypto'
import {
  GCM_NONCE_BYTES,
  GCM_TAG_BYTES,
  nonceAt,
  RESPONSE_KEY_LABEL,
  RESPONSE_NONCE_LABEL,
  writeFrame,
} from '#attestation/ehbp.ts'
import { hkdfExpand, hkdfExtract, KEY_BYTES } from './hpke.ts'

/**
 * Encrypts the frames of an answer, in their order (EHBP). The keys are derived as in RFC 9458
 * section 4.4. `secret` is what the context exports for RESPONSE_EXPORT. `enc` is the call's
 * encapsulated key. `responseNonce` is 32 random bytes, sent with the answer.
 */
export function createFrameSealer(options: {
  readonly secret: Uint8Array
  readonly enc: Uint8Array
  readonly responseNonce: Uint8Array
}) {
  const prk = hkdfExtract(Buffer.concat([options.enc, options.responseNonce]), options.secret)
  const key = hkdfExpand(prk, Buffer.from(RESPONSE_KEY_LABEL), KEY_BYTES)
  const baseNonce = hkdfExpand(prk, Buffer.from(RESPONSE_NONCE_LABEL), GCM_NONCE_BYTES)
  let sequence = 0
  return {
    /** Returns a whole frame: length, ciphertext, tag. */
    seal(content: Uint8Array): Uint8Array {
      const cipher = createCipheriv('aes-256-gcm', key, nonceAt(baseNonce, sequence), {
        authTagLength: GCM_TAG_BYTES,
      })
      sequence += 1
      return writeFrame(
        Buffer.concat([cipher.update(content), cipher.final(), cipher.getAuthTag()]),
      )
    },
  }
}
