import * as HPKE from 'hpke'
import {
  concatBytes,
  decodeHex,
  encodeBase64Url,
  encodeHex,
  encodeUtf8,
} from '#attestation/bytes.ts'
import {
  CREDENTIAL_INFO,
  createFrameReader,
  ENCAPSULATED_KEY_HEADER,
  GCM_NONCE_BYTES,
  GCM_TAG_BYTES,
  KEY_CONFIG_PROBLEM,
  NOTARY_HEADER,
  nonceAt,
  REQUEST_INFO,
  RESPONSE_EXPORT,
  RESPONSE_KEY_LABEL,
  RESPONSE_NONCE_HEADER,
  RESPONSE_NONCE_LABEL,
  writeFrame,
} from '#attestation/ehbp.ts'
import { FormatError } from '#attestation/errors.ts'
import { AffidavitError, messageOf } from './errors.ts'

export type EncryptionTarget = {
  /** The notary that signed the key: 0x, lower case. */
  readonly notary: string
  /** X25519, 32 bytes. */
  readonly publicKey: Uint8Array
}

export type SealedCall = {
  readonly headers: Readonly<Record<string, string>>
  readonly body: Uint8Array<ArrayBuffer>
  /**
   * Returns the answer, whose body is decrypted as it arrives. The body fails with AffidavitError
   * `not_encrypted` at a frame that does not come from the enclave, is out of order, or is longer
   * than `bytesMax`. If the answer is not encrypted, `open` throws this error.
   */
  open(response: Response, options: { readonly bytesMax: number }): Promise<Response>
}

const suite = new HPKE.CipherSuite(
  HPKE.KEM_DHKEM_X25519_HKDF_SHA256,
  HPKE.KDF_HKDF_SHA256,
  HPKE.AEAD_AES_256_GCM,
)

const SECRET_BYTES = 32

/**
 * Encrypts a call to an enclave (EHBP). `credential` is the value of `Fine-Tune-Authorization`
 * without `Bearer`, or null. The credential is encrypted to the same key as the body, and bound to
 * this call.
 */
export async function sealCall(parts: {
  readonly target: EncryptionTarget
  readonly body: Uint8Array
  readonly credential: string | null
}): Promise<SealedCall> {
  const { target, credential } = parts
  const { enc, ctx } = await setUp(target, REQUEST_INFO)
  const body = writeFrame(await ctx.Seal(parts.body))
  const secret = await ctx.Export(encodeUtf8(RESPONSE_EXPORT), SECRET_BYTES)
  return {
    headers: {
      [ENCAPSULATED_KEY_HEADER]: encodeHex(enc),
      [NOTARY_HEADER]: target.notary,
      ...(credential === null
        ? {}
        : { 'fine-tune-authorization': await sealCredential(target, { credential, enc }) }),
    },
    body,
    open: async (response, { bytesMax }) => {
      try {
        return await openAnswer(response, { enc, secret, bytesMax })
      } catch (fault) {
        void response.body?.cancel().catch(() => undefined)
        throw fault
      }
    },
  }
}

/**
 * Returns true if the answer states that the enclave lacks this key, and so did not process the
 * call. `body`: the body of the answer.
 */
export function isKeyConfigProblem({ status, headers }: Response, body: Uint8Array): boolean {
  const type = headers.get('content-type') ?? ''
  if (status !== 422 || !/^application\/problem\+json\b/i.test(type)) return false
  try {
    const problem: unknown = JSON.parse(new TextDecoder().decode(body))
    return (problem as { readonly type?: unknown } | null)?.type === KEY_CONFIG_PROBLEM
  } catch {
    return false
  }
}

async function setUp({ publicKey }: EncryptionTarget, info: string) {
  const key = await suite.DeserializePublicKey(publicKey)
  const { encapsulatedSecret, ctx } = await suite.SetupSender(key, { info: encodeUtf8(info) })
  return { enc: encapsulatedSecret, ctx }
}

/** The credential is bound to its call: the AAD is the hex of the call's encapsulated key. */
export async function sealCredential(
  target: EncryptionTarget,
  { credential, enc }: { readonly credential: string; readonly enc: Uint8Array },
): Promise<string> {
  const sealing = await setUp(target, CREDENTIAL_INFO)
  const sealed = await sealing.ctx.Seal(encodeUtf8(credential), encodeUtf8(encodeHex(enc)))
  return `hpke ${encodeBase64Url(concatBytes(sealing.enc, sealed))}`
}

/**
 * Does the same as SealedCall.open. `enc` is the call's encapsulated key. `secret` is the secret
 * for answers, exported from the call's HPKE context.
 */
export async function openAnswer(
  response: Response,
  {
    enc,
    secret,
    bytesMax,
  }: { readonly enc: Uint8Array; readonly secret: Uint8Array; readonly bytesMax: number },
): Promise<Response> {
  const nonce = response.headers.get(RESPONSE_NONCE_HEADER)
  if (nonce === null) {
    // If the call was not decrypted, the error is not encrypted.
    if (!response.ok) return response
    throw notEncrypted('expected an encrypted answer')
  }
  if (!/^[0-9a-f]{64}$/.test(nonce)) throw notEncrypted('expected a response nonce of 32 bytes')
  const opener = await createOpener({ enc, secret, nonce: decodeHex(nonce) })
  const headers = new Headers(response.headers)
  headers.delete('content-length')
  headers.delete(RESPONSE_NONCE_HEADER)
  const { status, statusText } = response
  const body = response.body === null ? null : openBody(response.body, { open: opener, bytesMax })
  return new Response(body, { status, statusText, headers })
}

type Opener = (frame: Uint8Array) => Promise<Uint8Array<ArrayBuffer>>

/** The returned function must receive the frames in their order. */
async function createOpener(parts: {
  readonly enc: Uint8Array
  readonly secret: Uint8Array
  readonly nonce: Uint8Array
}): Promise<Opener> {
  const prk = await hmac(concatBytes(parts.enc, parts.nonce), parts.secret)
  const expand = (label: string) => hmac(prk, concatBytes(encodeUtf8(label), Uint8Array.of(1)))
  const secretKey = await expand(RESPONSE_KEY_LABEL)
  const baseNonce = (await expand(RESPONSE_NONCE_LABEL)).subarray(0, GCM_NONCE_BYTES)
  const key = await crypto.subtle.importKey('raw', new Uint8Array(secretKey), 'AES-GCM', false, [
    'decrypt',
  ])
  let sequence = 0
  return async (frame) => {
    const iv = nonceAt(baseNonce, sequence)
    sequence += 1
    const sealed = new Uint8Array(frame)
    return new Uint8Array(await crypto.subtle.decrypt({ name: 'AES-GCM', iv }, key, sealed))
  }
}

/** HMAC with SHA-256: HKDF-Extract, and HKDF-Expand of one block (RFC 5869). */
async function hmac(key: Uint8Array, data: Uint8Array): Promise<Uint8Array> {
  const algorithm = { name: 'HMAC', hash: 'SHA-256' }
  const imported = await crypto.subtle.importKey('raw', new Uint8Array(key), algorithm, false, [
    'sign',
  ])
  return new Uint8Array(await crypto.subtle.sign('HMAC', imported, new Uint8Array(data)))
}

/** The end of the body does not prove that the body is complete: the reader must check that. */
function openBody(
  source: ReadableStream<Uint8Array>,
  { open, bytesMax }: { readonly open: Opener; readonly bytesMax: number },
): ReadableStream<Uint8Array<ArrayBuffer>> {
  const reader = source.getReader()
  const frames = createFrameReader(bytesMax + GCM_TAG_BYTES)
  return new ReadableStream<Uint8Array<ArrayBuffer>>(
    {
      async pull(controller) {
        try {
          for (;;) {
            const { done, value } = await reader.read()
            if (done) {
              frames.end()
              controller.close()
              return
            }
            let isGiven = false
            for (const frame of frames.push(value)) {
              const content = await openFrame(open, frame)
              if (content.length === 0) continue
              controller.enqueue(content)
              isGiven = true
            }
            if (isGiven) return
          }
        } catch (fault) {
          void reader.cancel(fault).catch(() => undefined)
          throw fault instanceof FormatError ? notEncrypted(fault.message, fault) : fault
        }
      },
      cancel: (reason) => reader.cancel(reason),
    },
    { highWaterMark: 0 },
  )
}

async function openFrame(open: Opener, frame: Uint8Array): Promise<Uint8Array<ArrayBuffer>> {
  try {
    return await open(frame)
  } catch (cause) {
    throw notEncrypted(
      `a frame is not from the enclave, or not in the right order: ${messageOf(cause)}`,
      cause,
    )
  }
}

function notEncrypted(message: string, cause?: unknown): AffidavitError {
  return new AffidavitError('not_encrypted', message, cause === undefined ? {} : { cause })
}
