import { randomBytes } from 'node:crypto'
import {
  CREDENTIAL_INFO,
  createFrameReader,
  ENCAPSULATED_KEY_HEADER,
  KEY_CONFIG_PROBLEM,
  REQUEST_INFO,
  RESPONSE_EXPORT,
  RESPONSE_NONCE_HEADER,
} from '#attestation/ehbp.ts'
import { type EncryptionKey, encryptionKeyDigest } from '#attestation/encryption-key.ts'
import { createFrameSealer } from '#enclave/encryption/frames.ts'
import { KEY_BYTES, publicKeyOf, setUpRecipient } from '#enclave/encryption/hpke.ts'
import { CHAIN_ID, CONTRACT, NOTARY } from '../attestation/build-record.ts'

/** A call as an enclave opened it. */
export type OpenedCall = {
  readonly body: string
  readonly credential: string | null
  /** Seals an answer, a frame for each text. */
  seal(texts: readonly string[]): SealedAnswer
}

export type SealedAnswer = { readonly nonce: string; readonly frames: readonly Uint8Array[] }

/** The enclave's side of encrypted calls, with one key. */
export type MemoryEnclave = {
  readonly publicKey: string
  /** Its notary's statement, or another one's, or of something else. */
  state(fields: StatedKey): EncryptionKey
  /** Throws CallFault `bad_ciphertext` for what was not sealed to its key. */
  open(headers: Headers, body: Uint8Array): OpenedCall
}

type StatedKey = {
  readonly notBefore: number
  readonly notAfter: number
  readonly publicKey?: string
  readonly chainId?: number
  readonly contract?: string
  readonly signer?: typeof NOTARY | undefined
}

export function createMemoryEnclave(): MemoryEnclave {
  const secretKey = randomBytes(KEY_BYTES)
  const pair = { secretKey, publicKey: publicKeyOf(secretKey) }
  const publicKey = pair.publicKey.toString('hex')
  return {
    publicKey,
    state: ({ notBefore, notAfter, chainId = CHAIN_ID, contract = CONTRACT, ...given }) => {
      const { signer = NOTARY } = given
      const stated = {
        public_key: given.publicKey ?? publicKey,
        not_before: notBefore,
        not_after: notAfter,
      }
      const digest = encryptionKeyDigest({ chainId, contract }, stated)
      return { ...stated, signature: signer.signingKey.sign(digest).serialized }
    },
    open: (headers, bytes) => {
      const hex = headers.get(ENCAPSULATED_KEY_HEADER) ?? ''
      const enc = Buffer.from(hex, 'hex')
      const context = setUpRecipient(pair, { enc, info: REQUEST_INFO })
      const reader = createFrameReader(1_000_000)
      const parts = [...reader.push(bytes)].map((frame) => context.open(frame))
      reader.end()
      const secret = context.export(RESPONSE_EXPORT, KEY_BYTES)
      return {
        body: Buffer.concat(parts).toString(),
        credential: openCredential(headers.get('fine-tune-authorization')),
        seal: (texts) => {
          const responseNonce = randomBytes(KEY_BYTES)
          const sealer = createFrameSealer({ secret, enc, responseNonce })
          return {
            nonce: responseNonce.toString('hex'),
            frames: texts.map((text) => sealer.seal(Buffer.from(text))),
          }
        },
      }

      function openCredential(header: string | null): string | null {
        if (header === null) return null
        const sealed = Buffer.from(header.replace(/^hpke /, ''), 'base64url')
        const own = { enc: sealed.subarray(0, KEY_BYTES), info: CREDENTIAL_INFO }
        return setUpRecipient(pair, own)
          .open(sealed.subarray(KEY_BYTES), Buffer.from(hex))
          .toString()
      }
    },
  }
}

/** An encrypted answer as a gateway passes it on. */
export function passOn(
  { nonce, frames }: SealedAnswer,
  { status = 200, type }: { readonly status?: number; readonly type: string },
): Response {
  const body = new ReadableStream<Uint8Array<ArrayBuffer>>({
    start(controller) {
      for (const frame of frames) controller.enqueue(new Uint8Array(frame))
      controller.close()
    },
  })
  return new Response(body, {
    status,
    headers: { 'content-type': type, [RESPONSE_NONCE_HEADER]: nonce },
  })
}

/** What a gateway says when the key is of no enclave of its own. */
export function keyConfig(): Response {
  return new Response(JSON.stringify({ type: KEY_CONFIG_PROBLEM, title: 'fetch the keys again' }), {
    status: 422,
    headers: { 'content-type': 'application/problem+json' },
  })
}
