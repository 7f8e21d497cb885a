import type { Readable } from 'node:stream'
import { z } from 'zod'
import { DIALECT_NAMES } from '#attestation/dialects/dialect-names.ts'
import {
  type BootStatementReply,
  type EnclaveFault,
  type HeadAttestationReply,
  type Identity,
  PROTOCOL_VERSION,
  type PullReply,
  type SealedNotice,
  STREAM_EVENTS,
} from '#enclave/protocol/enclave-api.ts'
import { SIGNED_REFUSAL } from '../api/faces.ts'
import { EnclaveError, enclaveErrorOf } from './enclave-errors.ts'

/*
 * Each of these functions returns its argument, not a copy: unknown members must stay, because they
 * are part of a boot configuration's hash. Each throws EnclaveError `protocol`.
 */

/** This gateway must support the enclave's protocol version. */
export function parseIdentity(value: unknown): Identity {
  const identity = parse<Identity>(identitySchema, value, 'an identity')
  const version = identity.boot_configuration.protocol_version
  if (version !== PROTOCOL_VERSION)
    throw new EnclaveError(
      'protocol',
      `expected protocol version ${PROTOCOL_VERSION}, got ${version}`,
    )
  return identity
}

export function parseSealedNotice(value: unknown): SealedNotice {
  return parse<SealedNotice>(noticeSchema, value, 'a sealed notice')
}

/** An unknown code becomes an internal error of the enclave. */
export function parseFault(value: unknown): EnclaveFault {
  const fault = parse<EnclaveFault>(faultSchema, value, 'a fault')
  return Object.hasOwn(FAULT_CODES, fault.code) ? fault : { ...fault, code: 'internal_error' }
}

/** The committer must verify the hashes, signatures and order. */
export function parsePullReply(value: unknown): PullReply {
  return parse<PullReply>(pullReplySchema, value, 'a pull reply')
}

/** Standard base64. */
export function parseAttestationReply(value: unknown): string {
  return parse<{ readonly document: string }>(
    z.object({ document: z.string() }),
    value,
    'a document',
  ).document
}

/** The caller must check the document. */
export function parseHeadAttestationReply(value: unknown): HeadAttestationReply {
  return parse<HeadAttestationReply>(headAttestationSchema, value, 'a head attestation')
}

export function parseBootStatementReply(value: unknown): BootStatementReply {
  return parse<BootStatementReply>(bootStatementSchema, value, 'a boot statement')
}

function parse<Value>(schema: z.ZodType, value: unknown, expected: string): Value {
  const { error } = schema.safeParse(value)
  const issue = error?.issues[0]
  if (issue)
    throw new EnclaveError('protocol', `expected ${expected}, fault at ${issue.path.join('.')}`)
  return value as Value
}

const index = z.int().min(0)
const signature = z.string().regex(/^0x[0-9a-f]{130}$/)
const outcome = z.enum(['complete', 'client_disconnected', 'upstream_error'])

const identitySchema = z.object({
  boot_configuration: z.object({
    protocol_version: z.int(),
    providers: z.array(
      z.object({
        name: z.string(),
        origin: z.url(),
        path: z.string(),
        models: z.array(z.string()),
        keys: z.array(z.string()).optional(),
        endpoints: z
          .partialRecord(
            z.enum(DIALECT_NAMES),
            z.object({ path: z.string(), credential: z.literal('x-api-key').optional() }),
          )
          .optional(),
      }),
    ),
    ca_sha256: z.string(),
    chain_id: z.int(),
    contract: z.string(),
  }),
  public_key: z.string(),
  notary: z.string(),
  attestation: z.string(),
  encryption_keys: z.array(
    z.object({
      public_key: z.string().regex(/^[0-9a-f]{64}$/),
      not_before: index,
      not_after: index,
      signature,
    }),
  ),
  log: z.object({ size: index, acknowledged: index }),
})

const headAttestationSchema = z.object({
  size: index,
  root: z.string().regex(/^[0-9a-f]{64}$/),
  document: z.base64().min(1),
})

const bootStatementSchema = z.object({
  heads: z.array(
    z.strictObject({
      notary: z.string().regex(/^0x[0-9a-f]{40}$/),
      size: z.int().min(1),
      root: z.string().regex(/^[0-9a-f]{64}$/),
      signature,
    }),
  ),
  document: z.base64().min(1),
})

const noticeSchema = z.object({
  notary: z.string(),
  index,
  outcome,
  completion: z
    .object({
      response: z.string(),
      receipt: z.string(),
      signature,
      document: z.string(),
    })
    .optional(),
})

const faultSchema = z.object({
  status: z.int().min(400).max(599),
  code: z.string(),
  message: z.string(),
  loc: z.array(z.union([z.string(), z.number()])).optional(),
  provider_status: z.int().optional(),
  provider_code: z.string().optional(),
  provider_type: z.string().optional(),
  provider_param: z.string().optional(),
  in_stream: z.boolean().optional(),
  refused_reason: z.string().optional(),
  retry_after_seconds: z.number().min(0).optional(),
  should_retry: z.boolean().optional(),
  may_be_made: z.boolean().optional(),
  refusal: SIGNED_REFUSAL.optional(),
})

/** The compiler reports a missing code. */
const FAULT_CODES: Readonly<Record<EnclaveFault['code'], true>> = {
  invalid_request: true,
  unsupported_model: true,
  provider_mismatch: true,
  credential_mismatch: true,
  notary_mismatch: true,
  provider_refused: true,
  provider_error: true,
  provider_unreachable: true,
  provider_key_mismatch: true,
  provider_timeout: true,
  answer_too_large: true,
  log_full: true,
  not_ready: true,
  too_busy: true,
  invalid_call: true,
  log_conflict: true,
  bad_ciphertext: true,
  unknown_key: true,
  replayed_call: true,
  internal_error: true,
}

const sealedCompletionSchema = z.object({
  index,
  request: z.string().nullable(),
  response: z.string().nullable(),
  usage: z
    .object({ prompt_tokens: index, completion_tokens: index, total_tokens: index })
    .nullish(),
  call: z.string().optional(),
  receipt: z.string(),
  signature: z.string(),
  document: z.string(),
  context: z.string(),
})

const pullReplySchema = z.object({
  notary: z.string(),
  public_key: z.string(),
  head: z.object({ size: index, root: z.string(), signature: z.string() }).nullable(),
  completions: z.array(sealedCompletionSchema),
  documents: z.record(z.string(), z.string()),
})

/**
 * `chunks`: whole events, as the caller gets them. `last`: the data of the last event, as canonical
 * JSON text, to which the proof is added.
 */
export type EnclaveEvent =
  | { readonly kind: 'chunks'; readonly bytes: Uint8Array }
  | { readonly kind: 'last'; readonly chunk: string }
  | { readonly kind: 'fault'; readonly fault: EnclaveFault }
  | { readonly kind: 'sealed'; readonly notice: SealedNotice }

/** The enclave's own limit for an answer is much lower by default (24 MiB). */
export const EVENT_BYTES_MAX = 64 * 1024 * 1024

/** `dump` drops the rest of the body, so that the connection can be used again. */
type EventBody = Readable & { dump(options: { readonly limit: number }): Promise<void> }

/**
 * Reads the events in order, until `sealed` or a `fault`. Chunks are returned unparsed, so the
 * caller gets the enclave's bytes. Two line feeds end an event, and occur nowhere else. Throws
 * EnclaveError `unavailable` if the stream ends without `sealed`. Also throws `reply_too_large`,
 * `protocol`, or the signal's reason. Leaving the iteration early ends the call.
 */
export async function* readEnclaveEvents(
  body: EventBody,
  signal?: AbortSignal,
): AsyncGenerator<EnclaveEvent> {
  let isSealed = false
  let isFaulty = false
  // `body.destroy` below can emit an error, which is uncaught without this listener.
  body.on('error', () => {})
  try {
    for await (const events of wholeEvents(body))
      for (const event of splitEvents(events)) {
        if (event.kind === 'fault') isFaulty = true
        isSealed = event.kind === 'sealed'
        if (isSealed) void body.dump({ limit: DUMP_BYTES_MAX }).catch(() => {})
        yield event
        if (isSealed) return
      }
    if (!isFaulty)
      throw new EnclaveError('unavailable', 'the enclave ended a stream without sealing it')
  } catch (error) {
    throw enclaveErrorOf(error, signal)
  } finally {
    if (!isSealed) body.destroy()
  }
}

/** Maximum number of bytes that are read after `sealed`. A correct enclave sends no such bytes. */
const DUMP_BYTES_MAX = 4096

/** Returns parts that end with an event. The bytes of an incomplete event are joined only once. */
async function* wholeEvents(body: EventBody): AsyncGenerator<Buffer> {
  let held: readonly Buffer[] = []
  let heldBytes = 0
  for await (const part of body.iterator({ destroyOnReturn: false }) as AsyncIterable<Buffer>) {
    const end = endOfLastEvent(held.at(-1), part)
    if (end > 0)
      yield held.length === 0
        ? part.subarray(0, end)
        : Buffer.concat([...held, part.subarray(0, end)])
    const rest = part.subarray(end)
    held = end > 0 ? [rest] : [...held, rest]
    heldBytes = end > 0 ? rest.length : heldBytes + rest.length
    if (heldBytes > EVENT_BYTES_MAX)
      throw new EnclaveError('reply_too_large', 'one event is over the limit')
  }
}

/** Returns the index after the last event that ends in `part`. Returns 0 if no event ends there. */
function endOfLastEvent(before: Buffer | undefined, part: Buffer): number {
  const last = part.lastIndexOf(EVENT_END)
  if (last >= 0) return last + EVENT_END.length
  return part[0] === LINE_FEED && before?.at(-1) === LINE_FEED ? 1 : 0
}

const LINE_FEED = 0x0a
const EVENT_END = '\n\n'
const NAMED_EVENT = 'event: '
const OWN_EVENT = new RegExp(`^event: (?:${Object.values(STREAM_EVENTS).join('|')})\n`)
const OWN_EVENT_LENGTH_MAX = 'event: sealed\n'.length

function* splitEvents(events: Buffer): Generator<EnclaveEvent> {
  let start = 0
  while (start < events.length) {
    const named = nextOwnEvent(events, start)
    if (named > start) yield { kind: 'chunks', bytes: events.subarray(start, named) }
    if (named === events.length) return
    start = events.indexOf(EVENT_END, named) + EVENT_END.length
    yield readNamedEvent(events.toString('utf8', named, start))
  }
}

/**
 * Returns the start of the next event for the gateway, else the length of `events`. OWN_EVENT
 * checks the name, because events for the caller may have names too. Data contains no line feed, so
 * an empty line always ends an event.
 */
function nextOwnEvent(events: Buffer, start: number): number {
  for (let at = start; at < events.length; ) {
    if (OWN_EVENT.test(events.toString('latin1', at, at + OWN_EVENT_LENGTH_MAX))) return at
    const found = events.indexOf(EVENT_END + NAMED_EVENT, at)
    if (found < 0) break
    at = found + EVENT_END.length
  }
  return events.length
}

function readNamedEvent(text: string): EnclaveEvent {
  const [first = '', second = ''] = text.split('\n')
  const name = first.slice(NAMED_EVENT.length)
  const data = second.startsWith('data: ') ? second.slice('data: '.length) : ''
  const value = readJson(data)
  if (name === STREAM_EVENTS.last) {
    if (typeof value === 'object' && value !== null && !Array.isArray(value))
      return { kind: 'last', chunk: data }
    throw new EnclaveError('protocol', 'expected an object in the last event')
  }
  if (name === STREAM_EVENTS.sealed) return { kind: 'sealed', notice: parseSealedNotice(value) }
  if (name === STREAM_EVENTS.fault) return { kind: 'fault', fault: parseFault(value) }
  throw new EnclaveError('protocol', 'expected a last, sealed or fault event')
}

function readJson(text: string): unknown {
  try {
    return JSON.parse(text)
  } catch {
    throw new EnclaveError('protocol', 'expected JSON in a named event')
  }
}
