import type { IncomingMessage } from 'node:http'
import {
  CREDENTIAL_INFO,
  createFrameReader,
  GCM_TAG_BYTES,
  REQUEST_INFO,
  RESPONSE_EXPORT,
} from '../../attestation/ehbp.ts'
import { FormatError } from '../../attestation/errors.ts'
import { ByteBuffer } from '../byte-buffer.ts'
import { CallerGone, CallFault, logFull } from '../call-fault.ts'
import type { Space } from '../log/memory-budget.ts'
import {
  CREDENTIAL_BYTES_MAX,
  type EncryptedCall,
  REQUEST_BYTES_MAX,
} from '../protocol/messages.ts'
import { badCiphertext, KEY_BYTES, type RecipientContext, setUpRecipient } from './hpke.ts'
import type { KeyRing, RingKey } from './key-ring.ts'

/** An encrypted call, opened. */
export type OpenedCall = {
  readonly body: Uint8Array
  /** Of the same context: what the answer is sealed with. */
  readonly secret: Uint8Array
  /** The caller's own credential; null when it sent none. */
  readonly callerCredential: string | null
}

/**
 * Opens an encrypted call as it comes. Throws CallFault: `unknown_key` when no key of the ring
 * opens the first frame, which looks the same whether the key or the frame is another;
 * `replayed_call` when its encapsulated key was used before; `bad_ciphertext` for any later frame,
 * and for a credential that is not of this call; `invalid_request` (413) for a body that is too
 * long; `log_full` without memory. Throws CallerGone when the body is cut.
 */
export async function openCall(
  request: IncomingMessage,
  {
    call,
    ring,
    space,
  }: { readonly call: EncryptedCall; readonly ring: KeyRing; readonly space: Space },
): Promise<OpenedCall> {
  const enc = Buffer.from(call.encapsulated_key, 'hex')
  const room = space.reserve(0)
  if (room === null) throw logFull()
  const reader = createFrameReader(REQUEST_BYTES_MAX + GCM_TAG_BYTES)
  const body = new ByteBuffer()
  let length = 0
  let opened: { readonly key: RingKey; readonly context: RecipientContext } | null = null
  try {
    for await (const packet of request as AsyncIterable<Buffer>) {
      if (!room.grow(3 * packet.length)) throw logFull()
      for (const frame of reader.push(packet)) {
        let content: Buffer
        if (opened === null) {
          const first = openFirst(ring, { enc, frame })
          opened = first
          content = first.content
        } else content = opened.context.open(frame)
        length += content.length
        if (length > REQUEST_BYTES_MAX) throw tooLong()
        body.append(content)
      }
    }
    reader.end()
  } catch (error) {
    if (error instanceof FormatError) throw badCiphertext()
    if (error instanceof CallFault) throw error
    throw new CallerGone('the gateway closed the connection within a request')
  } finally {
    room.release()
  }
  if (opened === null) throw badCiphertext()
  return {
    body: body.take(),
    secret: opened.context.export(RESPONSE_EXPORT, KEY_BYTES),
    callerCredential: openCredential(opened.key, call),
  }
}

function openFirst(
  ring: KeyRing,
  { enc, frame }: { readonly enc: Uint8Array; readonly frame: Uint8Array },
): { readonly key: RingKey; readonly context: RecipientContext; readonly content: Buffer } {
  for (const key of ring.keys()) {
    try {
      const context = setUpRecipient(key, { enc, info: REQUEST_INFO })
      const content = context.open(frame)
      if (key.take(enc)) return { key, context, content }
    } catch (error) {
      if (error instanceof CallFault && error.fault.code === 'bad_ciphertext') continue
      throw error
    }
    throw new CallFault(
      'replayed_call',
      'A call with this encapsulated key was made before, or too many calls were.',
    )
  }
  throw new CallFault('unknown_key', 'No key of this enclave opens the call: fetch its keys again.')
}

/** Bound to its call: the encapsulated key of that, in lower-case hex, is its AAD. */
function openCredential(key: RingKey, call: EncryptedCall): string | null {
  if (call.sealed_credential === null) return null
  const sealed = Buffer.from(call.sealed_credential, 'base64url')
  const enc = sealed.subarray(0, KEY_BYTES)
  if (enc.length < KEY_BYTES) throw badCiphertext()
  const credential = setUpRecipient(key, { enc, info: CREDENTIAL_INFO })
    .open(sealed.subarray(KEY_BYTES), Buffer.from(call.encapsulated_key))
    .toString('latin1')
  // Printable, because it travels in a header.
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
