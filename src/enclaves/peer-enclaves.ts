import { Readable } from 'node:stream'
import { z } from 'zod'
import { DIALECT_NAMES } from '#attestation/dialects/dialect-names.ts'
import { NOTARIES_MAX } from '#attestation/notary-list.ts'
import { ENCRYPTED_RECORDS, type EncryptedCall } from '#enclave/protocol/enclave-api.ts'
import { ApiError, type ErrorCode } from '../api/errors.ts'
import type { PassedBody } from '../api/read-body.ts'
import type { Bus } from '../bus/bus.ts'
import type { Channel } from '../bus/channel.ts'
import type { Logger } from '../observability/logger.ts'
import { createFaultLog } from '../runtime/fault-log.ts'
import type { CompletionAnswer } from './enclave-client.ts'
import type { EnclaveEndpoint } from './enclave-endpoint.ts'
import { EnclaveError } from './enclave-errors.ts'
import type { EnclavePool, ServedNotary } from './enclave-pool.ts'
import { parseFault } from './enclave-replies.ts'
import {
  bringProof,
  type EncryptedAnswer,
  type EncryptedEvent,
  readRecord,
} from './encrypted-answer.ts'
import { type AttestationReply, attestationReply, servedNotary } from './notary-replies.ts'
import {
  bufferOf,
  endWith,
  type ProofFor,
  parseJsonMessage,
  peerErrorOf,
  tagged,
  unsent,
} from './peer-channels.ts'
import {
  COMPLETION_SERVICE,
  passCompletion,
  passedHeader,
  servePassedCompletion,
} from './peer-completions.ts'
import { type IdentityCheck, verifyPeerNotaries } from './peer-notaries.ts'

/** An enclave of this gateway, or another gateway with the enclave. */
export type EncryptedEndpoint = Pick<EnclaveEndpoint, 'encrypted'> & {
  /** Null: another gateway is connected to the enclave, and sends the proof. */
  readonly giveProof: EnclaveEndpoint['giveProof'] | null
}

/** The enclaves of the other gateways in the service. */
export type PeerEnclaves = {
  /** Returns the notaries, each with its last published document. */
  notaries(): readonly ServedNotary[]
  /** Null if no other gateway has the enclave. `isKnown`: of FreshCaller. Throws ApiError. */
  attest(nonce: string | null, notary: string, isKnown: boolean): Promise<AttestationReply | null>
  /** True if another gateway has the enclave of this notary. */
  holds(notary: string): boolean
  /** Sets the function that answers other gateways' requests for attestations. */
  serveAttestations(
    attest: (nonce: string | null, notary: string, isKnown: boolean) => Promise<AttestationReply>,
  ): void
  /** Null if no other gateway has the enclave. */
  endpoint(notary: string): EncryptedEndpoint | null
  /** Makes a call at the named enclave. Null if no other gateway has the enclave. */
  complete(...call: Parameters<EnclavePool['complete']>): Promise<CompletionAnswer> | null
  stop(): void
}

const NOTARIES_TOPIC = 'notaries'
const ATTEST_TOPIC = 'attest'
const ENCRYPTED_SERVICE = 'encrypted'
/** Documents and keys are renewed long before they expire, so this interval is short enough. */
const PUBLISH_INTERVAL_MS = 2_000
/** A notary counts as gone after this time without a publication. */
const NOTARIES_EXPIRE_MS = 7_000
const ATTEST_TIMEOUT_MS = 10_000
const FAULT_LOG_INTERVAL_MS = 30_000

const notaries = z.array(servedNotary).max(NOTARIES_MAX)
const attestQuestion = z.object({
  nonce: z.string().nullable(),
  notary: z.string(),
  /** Gateways of earlier releases leave it out. */
  is_known: z.boolean().default(false),
})
const attestAnswer = z.union([
  z.object({ reply: attestationReply }),
  z.object({
    error: z.enum(['overloaded', 'not_found', 'enclave_unavailable']),
    message: z.string(),
  }),
])
const encryptedHeader = z.object({
  notary: z.string(),
  context: z.string(),
  encapsulated_key: z.string(),
  sealed_credential: z.string().nullable(),
  dialect: z.enum(DIALECT_NAMES).optional(),
  answer_tokens_max: z.int().min(0).optional(),
})
const firstAnswer = z.union([
  z.object({ response_nonce: z.string().regex(/^[0-9a-f]{64}$/) }),
  z.object({ fault: z.unknown() }),
])

/** Other gateways may use this gateway's enclaves, and this gateway may use theirs. */
export function openPeerEnclaves(options: {
  readonly bus: Bus
  readonly enclaves: Pick<EnclavePool, 'notaries' | 'findEncrypted' | 'complete'>
  /** The check that is also used for this gateway's enclaves. */
  readonly check: IdentityCheck
  /** Credentials by provider. A call uses the credentials of the gateway that has the enclave. */
  readonly credentials: () => ReadonlyMap<string, string>
  readonly proofFor: ProofFor
  /**
   * How long the gateway waits for a pull that brings the enclave the proof. 0: no pull brings it.
   */
  readonly patienceMs: number
  readonly log: Logger
}): PeerEnclaves {
  const { bus, enclaves, check, log } = options
  const published = new Map<string, { notaries: readonly ServedNotary[]; atMs: number }>()
  const publish = () => bus.publish(NOTARIES_TOPIC, enclaves.notaries().slice(0, NOTARIES_MAX))
  const faults = createFaultLog(FAULT_LOG_INTERVAL_MS, () => performance.now())
  const onFault = (notary: string, fault: string) => {
    if (faults.isDue()) log.warn({ notary, fault }, 'notary of another gateway not taken')
  }
  const timer = setInterval(publish, PUBLISH_INTERVAL_MS)
  timer.unref()
  bus.onCome(publish)
  bus.onGone((peer) => published.delete(peer))
  bus.listen(NOTARIES_TOPIC, (peer, message) => {
    const list = notaries.parse(message) as unknown as readonly ServedNotary[]
    const atMs = performance.now()
    verifyPeerNotaries(list, { check, nowMs: Date.now(), onFault }).then(
      (verified) => {
        // During the check, a newer list may have arrived, or the other gateway may have gone.
        if (bus.peers().includes(peer) && (published.get(peer)?.atMs ?? 0) <= atMs)
          published.set(peer, { notaries: verified, atMs })
      },
      (error: unknown) => log.error({ err: error }, 'notaries of another gateway not verified'),
    )
  })
  bus.serve(ENCRYPTED_SERVICE, (channel, header) => serveEncrypted(channel, header, options))
  bus.serve(COMPLETION_SERVICE, (channel, header) =>
    servePassedCompletion(channel, header, options),
  )

  /** Returns the recently published notaries, by gateway. */
  function current(): readonly (readonly [peer: string, notary: ServedNotary])[] {
    const sinceMs = performance.now() - NOTARIES_EXPIRE_MS
    return [...published].flatMap(([peer, { notaries: list, atMs }]) =>
      atMs < sinceMs ? [] : list.map((notary) => [peer, notary] as const),
    )
  }
  const find = (notary: string | null) => current().find(([, one]) => one.notary === notary)
  const holderOf = (notary: string) => find(notary)?.[0] ?? null

  return {
    notaries: () => current().map(([, notary]) => notary),
    holds: (notary) => holderOf(notary) !== null,
    async attest(nonce, notary, isKnown) {
      const peer = holderOf(notary)
      if (peer === null) return null
      const question = { nonce, notary, is_known: isKnown }
      const asked = { question, timeoutMs: ATTEST_TIMEOUT_MS }
      const { data } = attestAnswer.safeParse(await bus.ask(ATTEST_TOPIC, peer, asked))
      if (data === undefined) throw unreachable()
      if ('error' in data) throw new ApiError(data.error, data.message)
      return data.reply as unknown as AttestationReply
    },
    serveAttestations(attest) {
      bus.answer(ATTEST_TOPIC, bus.id, async (question) => {
        const { nonce, notary, is_known: isKnown } = attestQuestion.parse(question)
        try {
          return { reply: await attest(nonce, notary, isKnown) }
        } catch (error) {
          const isPassedOn = error instanceof ApiError && PASSED_ON.has(error.code)
          return isPassedOn
            ? { error: error.code, message: error.message }
            : { error: 'enclave_unavailable', message: unreachable().message }
        }
      })
    },
    endpoint(notary) {
      const peer = holderOf(notary)
      return peer === null ? null : remoteEndpoint(bus, peer, notary)
    },
    complete(wanted, body, signal) {
      const [peer, served] = find(wanted.notary) ?? []
      if (peer === undefined || served === undefined) return null
      const channel = bus.open(
        peer,
        COMPLETION_SERVICE,
        passedHeader(wanted.model, served.notary, wanted.callFor(served)),
      )
      return passCompletion(channel, body, signal)
    },
    stop: () => clearInterval(timer),
  }
}

const PASSED_ON: ReadonlySet<ErrorCode> = new Set([
  'overloaded',
  'not_found',
  'enclave_unavailable',
])

function unreachable(): ApiError {
  return new ApiError(
    'enclave_unavailable',
    'The gateway of this enclave does not answer, try again',
  )
}

function remoteEndpoint(bus: Bus, peer: string, notary: string): EncryptedEndpoint {
  return {
    giveProof: null,
    async encrypted(
      { credentials: _, ...call }: EncryptedCall,
      body: Pick<PassedBody, 'stream' | 'fault'>,
      signal: AbortSignal,
    ): Promise<EncryptedAnswer> {
      signal.throwIfAborted()
      const channel = bus.open(peer, ENCRYPTED_SERVICE, { notary, ...call })
      if (channel.signal.aborted) throw unsent()
      const leave = () => channel.abort(null)
      signal.addEventListener('abort', leave)
      const over = () => {
        signal.removeEventListener('abort', leave)
        channel.abort(null)
      }
      // Not awaited, because the answer may begin before the whole body is sent. A failed body
      // closes the channel.
      sendBody(channel, body.stream).catch(leave)
      const messages = channel.messages[Symbol.asyncIterator]()
      try {
        const { done, value } = await messages.next()
        const { data: first } = firstAnswer.safeParse(done ? null : parseJsonMessage(value))
        if (first === undefined)
          throw new EnclaveError('protocol', 'the other gateway answered without a beginning')
        if ('response_nonce' in first) {
          const events = readEvents(messages, { channel, over, signal })
          return { kind: 'answer', responseNonce: first.response_nonce, events }
        }
        over()
        return { kind: 'fault', fault: parseFault(first.fault) }
      } catch (error) {
        over()
        throw body.fault() ?? peerErrorOf(error, signal)
      }
    },
  }
}

/** Returns events as they arrive. Leaving the iteration ends the call. */
async function* readEvents(
  messages: AsyncIterator<Uint8Array>,
  {
    channel,
    over,
    signal,
  }: { readonly channel: Channel; readonly over: () => void; readonly signal: AbortSignal },
): AsyncGenerator<EncryptedEvent> {
  try {
    for (;;) {
      const { done, value } = await messages.next()
      if (done) break
      yield readRecord(value[0] ?? 0, bufferOf(value.subarray(1)))
    }
    await channel.end()
  } catch (error) {
    throw peerErrorOf(error, signal)
  } finally {
    over()
  }
}

async function sendBody(channel: Channel, stream: Readable): Promise<void> {
  for await (const part of stream as AsyncIterable<Buffer>) await channel.send(part)
  await channel.end()
}

/** Makes an encrypted call for another gateway, on an enclave of this gateway. */
async function serveEncrypted(
  channel: Channel,
  header: unknown,
  { enclaves, credentials, proofFor, patienceMs, log }: Parameters<typeof openPeerEnclaves>[0],
): Promise<void> {
  const { notary, ...call } = encryptedHeader.parse(header)
  const { signal } = channel
  const answered = new AbortController()
  const stream = Readable.from(partsOf(channel), { objectMode: false })
  stream.on('error', () => {})
  try {
    const endpoint = enclaves.findEncrypted(notary)
    if (endpoint === null) throw unsent()
    const given = { ...call, credentials: Object.fromEntries(credentials()) }
    const answer = await endpoint.encrypted(given, { stream, fault: () => null }, signal)
    if (answer.kind === 'fault') {
      await channel.send(Buffer.from(JSON.stringify({ fault: answer.fault })))
    } else {
      await channel.send(Buffer.from(JSON.stringify({ response_nonce: answer.responseNonce })))
      for await (const event of answer.events) {
        await channel.send(writeRecord(event))
        // An empty `call` means that the answer needs no proof.
        if (event.kind !== 'sealed' || event.sealed.call === '') continue
        bringProof({
          proof: proofFor(event.sealed, signal),
          give: (proof) => endpoint.giveProof(proof, signal),
          patienceMs,
          answered: answered.signal,
        }).catch((error: unknown) => {
          // The enclave itself reports a late proof to its caller, in a frame.
          if (!signal.aborted) log.error({ err: error }, 'proof of an encrypted call not given')
        })
      }
    }
    await channel.end()
  } catch (error) {
    endWith(error, channel)
  } finally {
    answered.abort()
  }
}

/** Drops the parts of the body that the enclave does not read. */
async function* partsOf({ messages, signal }: Channel): AsyncGenerator<Buffer> {
  const parts = messages[Symbol.asyncIterator]()
  try {
    for (;;) {
      const { done, value } = await parts.next()
      if (done) return
      yield bufferOf(value)
    }
  } finally {
    const rest = async () => {
      while (!signal.aborted && !(await parts.next()).done);
    }
    rest().catch(() => undefined)
  }
}

function writeRecord(event: EncryptedEvent): Uint8Array {
  switch (event.kind) {
    case 'frames':
      return tagged(ENCRYPTED_RECORDS.frame, event.bytes)
    case 'head':
      return tagged(ENCRYPTED_RECORDS.head, Buffer.from(JSON.stringify(event.head)))
    case 'sealed':
      return tagged(ENCRYPTED_RECORDS.sealed, Buffer.from(JSON.stringify(event.sealed)))
    case 'fault':
      return tagged(ENCRYPTED_RECORDS.fault, Buffer.from(JSON.stringify(event.fault)))
  }
}
