import { z } from 'zod'
import { DIALECT_NAMES } from '#attestation/dialects/dialect-names.ts'
import type { CompletionCall, EnclaveFault, SealedNotice } from '#enclave/protocol/enclave-api.ts'
import { hideCredential } from '#enclave/protocol/hide-credential.ts'
import type { Channel } from '../bus/channel.ts'
import type { CompletionAnswer } from './enclave-client.ts'
import { EnclaveError } from './enclave-errors.ts'
import type { EnclavePool } from './enclave-pool.ts'
import { type EnclaveEvent, parseFault, parseSealedNotice } from './enclave-replies.ts'
import {
  bufferOf,
  endWith,
  type ProofFor,
  parseJsonMessage,
  peerErrorOf,
  tagged,
  unsent,
} from './peer-channels.ts'

/*
 * A call in the clear that names an enclave of another gateway. The header has all but the body,
 * which is one message. The answer's messages begin with a byte of KINDS. The notice comes when the
 * record is stored.
 */

export const COMPLETION_SERVICE = 'completion'

/**
 * How long a caller waits for the commit of a sealed completion. The commit continues after that.
 */
export const COMMIT_TIMEOUT_MS = 60_000

const KINDS = { stream: 0, chunks: 1, last: 2, sealed: 3, fault: 4 } as const

const passedCall = z.object({
  notary: z.string(),
  model: z.string(),
  call: z.object({
    context: z.string(),
    provider: z.string(),
    credential: z.string().nullable(),
    is_callers: z.boolean().default(false),
    dialect: z.enum(DIALECT_NAMES).optional(),
    headers: z.record(z.string(), z.string()).optional(),
    outlives_gateway: z.boolean().optional(),
  }),
})

/**
 * The header of a passed call. It has a caller's credential, and no credential of the operator: the
 * other gateway has its own.
 */
export function passedHeader(model: string, notary: string, call: CompletionCall) {
  return { model, notary, call: call.is_callers === true ? call : { ...call, credential: null } }
}

/** Throws EnclaveError and the signal's reason, as an enclave of this gateway does. */
export async function passCompletion(
  channel: Channel,
  body: Uint8Array,
  signal: AbortSignal,
): Promise<CompletionAnswer> {
  if (channel.signal.aborted) throw unsent()
  const leave = () => channel.abort(null)
  signal.addEventListener('abort', leave)
  if (signal.aborted) leave()
  const over = () => {
    signal.removeEventListener('abort', leave)
    channel.abort(null)
  }
  const events = readEvents(channel, { signal, over })
  try {
    await channel.send(body)
    await channel.end()
    const { value: first } = await events.next()
    if (first === 'stream')
      return { kind: 'stream', events: events as AsyncGenerator<EnclaveEvent> }
    if (first?.kind !== 'sealed' && first?.kind !== 'fault') throw unreadable()
    over()
    return first
  } catch (error) {
    over()
    throw peerErrorOf(error, signal)
  }
}

/** Leaving the iteration ends the call. */
async function* readEvents(
  { messages }: Channel,
  { signal, over }: { readonly signal: AbortSignal; readonly over: () => void },
): AsyncGenerator<EnclaveEvent | 'stream'> {
  try {
    for await (const message of messages) yield readMessage(message)
  } catch (error) {
    throw peerErrorOf(error, signal)
  } finally {
    over()
  }
}

function readMessage(message: Uint8Array): EnclaveEvent | 'stream' {
  const content = message.subarray(1)
  switch (message[0]) {
    case KINDS.stream:
      return 'stream'
    case KINDS.chunks:
      return { kind: 'chunks', bytes: content }
    case KINDS.last:
      return { kind: 'last', chunk: bufferOf(content).toString() }
    case KINDS.sealed:
      return { kind: 'sealed', notice: parseSealedNotice(parseJsonMessage(content)) }
    case KINDS.fault:
      return { kind: 'fault', fault: parseFault(parseJsonMessage(content)) }
    default:
      throw unreadable()
  }
}

function unreadable(): EnclaveError {
  return new EnclaveError('protocol', 'the other gateway sent a message of another kind')
}

/** Makes a call for another gateway, at an enclave of this gateway. */
export async function servePassedCompletion(
  channel: Channel,
  header: unknown,
  {
    enclaves,
    credentials,
    proofFor,
  }: {
    readonly enclaves: Pick<EnclavePool, 'complete'>
    readonly credentials: () => ReadonlyMap<string, string>
    readonly proofFor: ProofFor
  },
): Promise<void> {
  const { notary, model, call: passed } = passedCall.parse(header)
  const { signal } = channel
  const { provider, is_callers: isCallers, dialect = 'chat' } = passed
  const credential = isCallers ? passed.credential : (credentials().get(provider) ?? null)
  const call = { ...passed, credential } as CompletionCall
  const send = async (event: EnclaveEvent) => {
    if (event.kind === 'sealed') await stored(event.notice)
    await channel.send(writeEvent(event, (fault) => hideCredential(fault, hidden)))
  }
  const hidden = { credential, isOperators: !isCallers }
  const stored = async ({ notary: of, index }: SealedNotice) => {
    const waiting = AbortSignal.any([signal, AbortSignal.timeout(COMMIT_TIMEOUT_MS)])
    await proofFor({ notary: of, index, call: '' }, waiting).catch(() => {
      if (waiting.aborted) throw new EnclaveError('timeout', 'the record was not stored in time')
      // Without a record, the other gateway reports a lost completion.
    })
  }
  try {
    const { value: body } = await channel.messages[Symbol.asyncIterator]().next()
    const wanted = { model, dialect, notary, callFor: () => call }
    const answer = await enclaves.complete(wanted, body ?? new Uint8Array(), signal)
    if (answer.kind !== 'stream') await send(answer)
    else {
      await channel.send(tagged(KINDS.stream))
      for await (const event of answer.events) await send(event)
    }
    await channel.end()
  } catch (error) {
    endWith(error, channel)
  }
}

function writeEvent(event: EnclaveEvent, hide: (fault: EnclaveFault) => EnclaveFault): Uint8Array {
  switch (event.kind) {
    case 'chunks':
      return tagged(KINDS.chunks, event.bytes)
    case 'last':
      return tagged(KINDS.last, Buffer.from(event.chunk))
    case 'sealed':
      return tagged(KINDS.sealed, Buffer.from(JSON.stringify(event.notice)))
    case 'fault':
      return tagged(KINDS.fault, Buffer.from(JSON.stringify(hide(event.fault))))
  }
}
