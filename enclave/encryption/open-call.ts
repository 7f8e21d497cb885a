import type { IncomingMessage } from 'node:http'
import { ByteBuffer } from '#attestation/byte-buffer.ts'
import {
  CREDENTIAL_INFO,
  createFrameReader,
  FRAME_LENGTH_BYTES,
  GCM_TAG_BYTES,
  REQUEST_INFO,
  RESPONSE_EXPORT,
} from '#attestation/ehbp.ts'
import { FormatError } from '#attestation/errors.ts'
import { CallerGone, CallFault, logFull } from '../call-fault.ts'
import type { Reservation, Space } from '../log/memory-budget.ts'
import {
  CREDENTIAL_BYTES_MAX,
  type EncryptedCall,
  REQUEST_BYTES_MAX,
} from '../protocol/enclave-api.ts'
import { badCiphertext, KEY_BYTES, type RecipientContext, setUpRecipient } from './hpke.ts'
import type { KeyRing, RingKey } from './key-ring.ts'

export type OpenedCall = {
  readonly body: Uint8Array
  /** The secret for the answer, from the context of this call. */
  readonly secret: Uint8Array
  /** Null without a credential. */
  readonly callerCredential: string | null
}

/**
 * Limit for the overhead of a body's frames, bytes: lengths and tags. It allows 52,428 frames: the
 * enclave's one thread decrypts them in several seconds.
 */
const FRAMING_BYTES_MAX = 1024 * 1024

/**
 * Decrypts an encrypted call as it arrives. Throws CallFault: `unknown_key` when no key of the ring
 * decrypts the first frame (a wrong key and a wrong frame look the same); `replayed_call` when the
 * call's encapsulated key was used before; `bad_ciphertext` for a wrong later frame, or a
 * credential of another call; `invalid_request` (413) for a body that is too long; `log_full`
 * without memory. Throws CallerGone when the body is cut.
 */
export async function openCall(
  request: IncomingMessage,
  options: { readonly call: EncryptedCall; readonly ring: KeyRing; readonly space: Space },
): Promise<OpenedCall> {
  const room = options.space.reserve(0)
  if (room === null) throw logFull()
  try {
    return await readCall(request, { ...options, room })
  } catch (error) {
    // Some senders read no answer until the whole call is sent, so the rest is read and dropped.
    request.resume()
    if (error instanceof FormatError) throw badCiphertext()
    if (error instanceof CallFault) throw error
    throw new CallerGone('the gateway closed the connection within a request')
  } finally {
    room.release()
  }
}

async function readCall(
  request: IncomingMessage,
  options: { readonly call: EncryptedCall; readonly ring: KeyRing; readonly room: Reservation },
): Promise<OpenedCall> {
  // A longer frame than a request may have is opened, because only its content is too long.
  const reader = createFrameReader(REQUEST_BYTES_MAX + FRAMING_BYTES_MAX)
  const body = new ByteBuffer()
  let opened: FirstFrame | null = null
  let wireBytes = 0
  let framingBytes = 0
  for await (const packet of packetsOf(request)) {
    wireBytes += packet.length
    if (wireBytes > REQUEST_BYTES_MAX + FRAMING_BYTES_MAX) throw tooLong()
    if (!options.room.grow(BUFFER_FACTOR * packet.length)) throw logFull()
    const frames = [...reader.push(packet)]
    framingBytes += frames.length * (FRAME_LENGTH_BYTES + GCM_TAG_BYTES)
    if (framingBytes > FRAMING_BYTES_MAX) throw tooLong()
    for (const frame of frames) {
      if (opened === null) {
        opened = openFirst(frame, options)
        body.append(opened.content)
      } else body.append(opened.context.open(frame))
      if (body.length > REQUEST_BYTES_MAX) throw tooLong()
    }
  }
  reader.end()
  if (opened === null) throw badCiphertext()
  return {
    body: body.take(),
    secret: opened.context.export(RESPONSE_EXPORT, KEY_BYTES),
    callerCredential: opened.callerCredential,
  }
}

/** Keeps the connection open if the loop ends early, so that the fault can be sent. */
function packetsOf(request: IncomingMessage): AsyncIterable<Buffer> {
  return request.iterator({ destroyOnReturn: false })
}

/** Bytes of memory for each byte of a body during reading: the frame, and the doubling buffer. */
const BUFFER_FACTOR = 3

type FirstFrame = {
  readonly context: RecipientContext
  readonly content: Buffer
  readonly callerCredential: string | null
}

/** Decrypts all that needs the key, because the key may expire before the whole call arrives. */
function openFirst(
  frame: Uint8Array,
  { call, ring }: { readonly call: EncryptedCall; readonly ring: KeyRing },
): FirstFrame {
  const enc = Buffer.from(call.encapsulated_key, 'hex')
  for (const key of ring.keys()) {
    const opened = tryKey(key, { enc, frame })
    if (opened === null) continue
    if (!key.take(enc))
      throw new CallFault('replayed_call', 'A call with this encapsulated key was made before.')
    return { ...opened, callerCredential: openCredential(key, call) }
  }
  throw new CallFault('unknown_key', 'No key of this enclave opens the call: fetch its keys again.')
}

/** Returns null if this key does not decrypt the frame. */
function tryKey(
  key: RingKey,
  { enc, frame }: { readonly enc: Uint8Array; readonly frame: Uint8Array },
): Pick<FirstFrame, 'context' | 'content'> | null {
  try {
    const context = setUpRecipient(key, { enc, info: REQUEST_INFO })
    return { context, content: context.open(frame) }
  } catch (error) {
    if (error instanceof CallFault) return null
    throw error
  }
}

/** The credential is bound to its call: its AAD is the call's encapsulated key, lower-case hex. */
function openCredential(key: RingKey, call: EncryptedCall): string | null {
  if (call.sealed_credential === null) return null
  const sealed = Buffer.from(call.sealed_credential, 'base64url')
  const enc = sealed.subarray(0, KEY_BYTES)
  if (enc.length < KEY_BYTES) throw badCiphertext()
  const credential = setUpRecipient(key, { enc, info: CREDENTIAL_INFO })
    .open(sealed.subarray(KEY_BYTES), Buffer.from(call.encapsulated_key))
    .toString('latin1')
  // The credential is sent in a header, so it must be printable.
  if (!/^[\x21-\x7e]+$/.test(credential) || credential.length > CREDENTIAL_BYTES_MAX)
    throw badCiphertext()
  return credential
}

function tooLong(): CallFault {
  return new CallFault('invalid_request', `expected a body of at most ${REQUEST_BYTES_MAX} bytes`, {
    status: 413,
    loc: ['body'],
  })
}
