import type { Readable } from 'node:stream'
import { z } from 'zod'
import {
  type AnchorProof,
  ENCRYPTED_RECORDS,
  type EnclaveFault,
  type EncryptedFault,
  type EncryptedHead,
  type EncryptedSealed,
} from '#enclave/protocol/enclave-api.ts'
import { pause } from '../runtime/loop.ts'
import { EnclaveError, enclaveErrorOf } from './enclave-errors.ts'

/** No event has readable content. The caller gets the frames unchanged. */
export type EncryptedEvent =
  | { readonly kind: 'head'; readonly head: EncryptedHead }
  | { readonly kind: 'frames'; readonly bytes: Uint8Array }
  | { readonly kind: 'sealed'; readonly sealed: EncryptedSealed }
  | { readonly kind: 'fault'; readonly fault: EncryptedFault }

export type EncryptedAnswer =
  | { readonly kind: 'fault'; readonly fault: EnclaveFault }
  | {
      readonly kind: 'answer'
      /** `Ehbp-Response-Nonce`: 64 hex digits. */
      readonly responseNonce: string
      /** Leaving the iteration ends the call. */
      readonly events: AsyncIterable<EncryptedEvent>
    }

const PATIENCE_MS = 1_000

/**
 * Returns how long the gateway waits for the next pull, which can bring the proof to the enclave,
 * before it sends the proof itself. 0: pulls bring no proofs.
 */
export function proofPatienceMs(anchorIntervalMs: number): number {
  return anchorIntervalMs === 0 ? PATIENCE_MS : 0
}

/**
 * Sends the missing part of the proof to the enclave, unless the answer ends within `patienceMs`
 * after the commit.
 */
export async function bringProof({
  proof,
  give,
  patienceMs,
  answered,
}: {
  readonly proof: Promise<AnchorProof>
  readonly give: (proof: AnchorProof) => Promise<unknown>
  readonly patienceMs: number
  /** Aborted when the answer has ended. */
  readonly answered: AbortSignal
}): Promise<void> {
  const known = await proof
  await pause(patienceMs, answered)
  if (!answered.aborted) await give(known)
}

/** Limit of one record, which is one event of a stream, or a part of a whole answer. */
const RECORD_BYTES_MAX = 64 * 1024 * 1024

const HEAD_BYTES = 1 + 4

/**
 * Throws EnclaveError `unavailable` if the stream ends inside a record. Also throws `protocol`,
 * `reply_too_large`, or the signal's reason.
 */
export async function* readEncryptedEvents(
  body: Readable,
  signal?: AbortSignal,
): AsyncGenerator<EncryptedEvent> {
  // `body.destroy` below can emit an error, which is uncaught without this listener.
  body.on('error', () => {})
  // The parts of a long record are joined once, when it is complete.
  let parts: Buffer[] = []
  let heldBytes = 0
  let wantedBytes = HEAD_BYTES
  try {
    for await (const part of body as AsyncIterable<Buffer>) {
      parts.push(part)
      heldBytes += part.length
      if (heldBytes < wantedBytes) continue
      let held = parts.length === 1 ? part : Buffer.concat(parts, heldBytes)
      for (;;) {
        const { record, wanted } = takeRecord(held)
        wantedBytes = wanted
        if (record === null) break
        held = held.subarray(wanted)
        yield readRecord(record.kind, record.content)
      }
      parts = held.length === 0 ? [] : [held]
      heldBytes = held.length
    }
    if (heldBytes > 0)
      throw new EnclaveError('unavailable', 'the enclave ended an answer within a record')
  } catch (error) {
    throw enclaveErrorOf(error, signal)
  } finally {
    body.destroy()
  }
}

/**
 * `record` is null while it is incomplete. `wanted`: size of the record, or HEAD_BYTES while the
 * size is unknown.
 */
function takeRecord(held: Buffer): {
  readonly record: { readonly kind: number; readonly content: Buffer } | null
  readonly wanted: number
} {
  if (held.length < HEAD_BYTES) return { record: null, wanted: HEAD_BYTES }
  const size = held.readUInt32BE(1)
  if (size > RECORD_BYTES_MAX)
    throw new EnclaveError('reply_too_large', 'one record is over the limit')
  const wanted = HEAD_BYTES + size
  if (held.length < wanted) return { record: null, wanted }
  return {
    record: { kind: held.readUInt8(0), content: held.subarray(HEAD_BYTES, wanted) },
    wanted,
  }
}

/** Throws EnclaveError `protocol`. */
export function readRecord(kind: number, content: Buffer): EncryptedEvent {
  switch (kind) {
    case ENCRYPTED_RECORDS.frame:
      return { kind: 'frames', bytes: content }
    case ENCRYPTED_RECORDS.head:
      return { kind: 'head', head: parse(headSchema, content) }
    case ENCRYPTED_RECORDS.sealed:
      return { kind: 'sealed', sealed: parse(sealedSchema, content) }
    case ENCRYPTED_RECORDS.fault:
      return { kind: 'fault', fault: parse(faultSchema, content) as EncryptedFault }
    default:
      throw new EnclaveError('protocol', 'expected a head, frame, sealed or fault record')
  }
}

function parse<Value>(schema: z.ZodType<Value>, content: Buffer): Value {
  let value: unknown
  try {
    value = JSON.parse(content.toString('utf8'))
  } catch {
    throw new EnclaveError('protocol', 'expected JSON in a record')
  }
  const { data, error } = schema.safeParse(value)
  const issue = error?.issues[0]
  if (issue !== undefined || data === undefined)
    throw new EnclaveError('protocol', `expected a record, fault at ${issue?.path.join('.')}`)
  return data
}

const headSchema = z.object({
  status: z.int().min(200).max(599),
  content_type: z.enum(['application/json', 'text/event-stream; charset=utf-8']),
  retry_after_seconds: z.number().min(0).nullable(),
  should_retry: z.boolean(),
})

const count = z.int().min(0)

const sealedSchema = z.object({
  notary: z.string(),
  index: count,
  outcome: z.enum(['complete', 'client_disconnected', 'upstream_error']),
  call: z.string(),
  model: z.string(),
  usage: z
    .object({ prompt_tokens: count, completion_tokens: count, total_tokens: count })
    .nullable(),
})

const faultSchema = z.object({ code: z.string(), model: z.string().nullable() })
