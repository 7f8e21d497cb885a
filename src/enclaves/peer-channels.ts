import { z } from 'zod'
import type { AnchorProof, EncryptedSealed } from '#enclave/protocol/enclave-api.ts'
import { type Channel, ChannelError } from '../bus/channel.ts'
import { EnclaveError } from './enclave-errors.ts'

/** Waits until a completion is stored, and returns the missing part of its proof. */
export type ProofFor = (
  sealed: Pick<EncryptedSealed, 'notary' | 'index' | 'call'>,
  signal: AbortSignal,
) => Promise<AnchorProof>

const peerFailure = z.object({
  code: z.enum(['unavailable', 'timeout', 'refused', 'reply_too_large', 'protocol']),
  message: z.string(),
  was_sent: z.boolean(),
})

/** Sends an enclave's error to the other gateway. Throws any other error. */
export function endWith(error: unknown, channel: Channel): void {
  if (!(error instanceof EnclaveError) || channel.signal.aborted) throw error
  channel.abort({ code: error.code, message: error.message, was_sent: error.wasSent })
}

/** Converts the channel's end to the error that a local enclave would cause. */
export function peerErrorOf(error: unknown, signal: AbortSignal): unknown {
  if (signal.aborted) return signal.reason
  if (!(error instanceof ChannelError)) return error
  const { data } = peerFailure.safeParse(error.detail)
  if (data === undefined)
    return new EnclaveError('unavailable', 'the gateway that has the enclave is out of reach')
  return new EnclaveError(data.code, data.message, null, { wasSent: data.was_sent })
}

export function unsent(): EnclaveError {
  return new EnclaveError('unavailable', 'the gateway that has the enclave is gone', null, {
    wasSent: false,
  })
}

/** A message that begins with a byte for its kind. */
export function tagged(tag: number, content: Uint8Array = new Uint8Array()): Uint8Array {
  return Buffer.concat([Uint8Array.of(tag), content])
}

export function bufferOf(bytes: Uint8Array): Buffer {
  return Buffer.from(bytes.buffer, bytes.byteOffset, bytes.length)
}

export function parseJsonMessage(bytes: Uint8Array): unknown {
  return JSON.parse(bufferOf(bytes).toString())
}
