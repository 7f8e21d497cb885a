import type { z } from 'zod'
import { DIALECTS } from '#attestation/dialects/dialects.ts'
import { NOTARY_HEADER } from '#attestation/ehbp.ts'
import {
  type Claim,
  claimKey,
  claimOf,
  IDEMPOTENCY_ERRORS,
  type Idempotency,
  idempotencyHeaders,
  isWithoutResult,
} from '../../accounts/idempotency.ts'
import { admitCall, type Permit, type RateLimiter } from '../../accounts/limits/limiter.ts'
import { createAdmission } from '../../api/admission.ts'
import { type ApiError, CallerLeftError, UPSTREAM_ERRORS } from '../../api/errors.ts'
import type { EventWriter } from '../../api/event-stream.ts'
import { defineRoute, type Route, type RouteCall } from '../../api/route.ts'
import { usedTokensOf } from '../../chat/chat-tokens.ts'
import { createReplyText, responseOf, streamEndText } from '../records/record-text.ts'
import type { AnsweredRecord, StoredRecord } from '../records/records-store.ts'
import { credentialHeaders, givenHeaders } from './completion-call.ts'
import {
  type EncryptedCalls,
  isEncryptedCall,
  notaryHeader,
  serveEncryptedCall,
} from './encrypted-calls.ts'
import type { VerifiedCall, VerifiedCompletions } from './verified-completions.ts'
import {
  type AskedCompletion,
  VERIFIED_DIALECTS,
  type VerifiedDialect,
} from './verified-dialects.ts'

/** Limit for the bodies of all running calls together. */
const BODIES_BYTES_MAX = 512 * 1024 * 1024
/**
 * Memory of a waiting call besides its body: two connections and their queued data. Measured with
 * `npm run bench -- peers --rows open-gateway`.
 */
const CALL_BYTES = 100 * 1024

const callHeaders = idempotencyHeaders
  .extend(credentialHeaders.shape)
  .extend({ [NOTARY_HEADER]: notaryHeader })

type CompletionParts = {
  readonly completions: VerifiedCompletions
  readonly encrypted: EncryptedCalls
  readonly limiter: Pick<RateLimiter, 'admit'>
  readonly idempotency: Idempotency<StoredRecord>
  readonly bodyBytesMax: number
  /** Further calls are refused with 503. */
  readonly callsMax: number
}

/**
 * Returns the routes for verified completions in each dialect, whole or streamed (interface, parts
 * 2.1–2.3 and 6).
 */
export function verifiedCompletionRoutes(parts: CompletionParts): readonly Route[] {
  const { callsMax } = parts
  const admission = createAdmission({
    callsMax,
    bytesMax: BODIES_BYTES_MAX,
    callBytes: CALL_BYTES,
  })
  return VERIFIED_DIALECTS.flatMap((dialect) =>
    dialect.paths.map((path) => completionRoute(parts, { dialect, path, admission })),
  )
}

function completionRoute(
  { completions, encrypted, limiter, idempotency, bodyBytesMax }: CompletionParts,
  {
    dialect,
    path,
    admission,
  }: {
    readonly dialect: VerifiedDialect
    readonly path: string
    readonly admission: ReturnType<typeof createAdmission>
  },
): Route {
  return defineRoute({
    method: 'POST',
    path,
    face: dialect.face,
    tag: 'Verified chat',
    summary: dialect.summary,
    description:
      'A whole answer is hashed and signed inside the enclave, and stored with its anchor, ' +
      'before it is given. A stream is given as it arrives: only its last event, with the ' +
      'proof, waits for this, and without that event the caller has no evidence. ' +
      dialect.description +
      'This gateway reads request, answer and provider credential, unless the call is ' +
      'encrypted (EHBP, with `Ehbp-Encapsulated-Key` and `Affidavit-Notary`): ' +
      'then it forwards data that it cannot read. Errors before an enclave has opened the call ' +
      'are not encrypted, and an unknown key gives a 422 of ' +
      'type `application/problem+json`: fetch the keys again. The evidence shows that these ' +
      'words were exchanged, not who asked.',
    scope: 'inference',
    headers: callHeaders,
    body: { ...dialect.body, bytesMax: bodyBytesMax },
    reply: dialect.reply,
    events: dialect.events,
    errors: CALL_ERRORS,
    providerStatuses: PROVIDER_STATUSES,
    admission,
    isAbortable: true,
    raw: {
      isFor: isEncryptedCall,
      handler: (call) => serveEncryptedCall(encrypted, call, dialect.name),
    },
    async handler(call) {
      const { context, body: asked, bytes, headers, abort } = call
      const { model, size } = asked
      const permit = await admitCall(context, limiter, { kind: 'verified', model, ...size })
      try {
        const key = headers['idempotency-key']
        const given = givenHeaders(context, dialect.headers)
        const claimed = await claimKey(context, idempotency, {
          key,
          body: bytes,
          headers: given,
          isVerified: true,
          model,
          dialect: dialect.name,
          notary: headers[NOTARY_HEADER],
          abort,
        })
        return claimed?.kind === 'record'
          ? await answerAgain(call, dialect, claimed.record)
          : await answer(completions, call, { dialect, permit, claim: claimOf(claimed) })
      } finally {
        permit.settle(0)
      }
    },
  })
}

const CALL_ERRORS = [
  ...IDEMPOTENCY_ERRORS,
  'rate_limit_exceeded',
  'insufficient_quota',
  'unsupported_model',
  'provider_credential_missing',
  ...UPSTREAM_ERRORS,
  'credential_mismatch',
  'notary_mismatch',
  'enclave_unavailable',
  'enclave_timeout',
  'log_full',
  'commit_delayed',
  'completion_lost',
  'overloaded',
  'bad_ciphertext',
  'replayed_call',
  'unsupported_request_parameter',
  'content_erased',
  'content_key_missing',
  'content_unreadable',
] as const

/** The caller's credential or model can be at fault. */
const PROVIDER_STATUSES = [401, 402, 403, 404]

type CompletionCall = RouteCall<unknown, unknown, z.output<typeof callHeaders>, AskedCompletion>

/** The limiter's permit, and the claim of the Idempotency-Key. Both are settled after the call. */
type Granted = {
  readonly dialect: VerifiedDialect
  readonly permit: Permit
  /** Null for a call without an Idempotency-Key. */
  readonly claim: Claim | null
}

async function answer(
  completions: VerifiedCompletions,
  { context, caller, headers, body: asked, bytes, abort, stop, stream }: CompletionCall,
  granted: Granted,
): Promise<string | undefined> {
  const { claim, dialect } = granted
  const { accountId } = caller()
  const { requestId } = context.state
  const call: VerifiedCall = {
    model: asked.model,
    dialect: dialect.name,
    headers: givenHeaders(context, dialect.headers),
    body: bytes,
    callerCredential: headers['fine-tune-authorization'] ?? null,
    // If the caller leaves, a call with an Idempotency-Key continues. The caller gets the answer by
    // repeating the call with its key.
    abort: claim === null ? abort : stop,
    context: { accountId, requestId, ...(claim === null ? {} : { callId: claim.callId }) },
    notary: claim?.notary ?? headers[NOTARY_HEADER] ?? null,
    isNotaryDemanded: headers[NOTARY_HEADER] !== undefined,
  }
  const counted = { asked, events: 0, first: '' }
  if (!asked.isStream)
    return createReplyText(await settled(granted, counted, completions.complete(call)))
  const streamed = completions.stream(call)
  return stream(
    (writer) => {
      const kept = claim === null ? writer : outlivingReader(writer)
      return settled(granted, counted, writeEvents(streamed, kept, counted))
    },
    undefined,
    () => (counted.events === 0 ? null : dialect.soFar(counted.first, counted.events)),
  )
}

/** Returns a writer that ignores all writes after the reader has left. */
function outlivingReader(writer: EventWriter): EventWriter {
  const whileRead = (error: unknown) => {
    if (!(error instanceof CallerLeftError)) throw error
  }
  return {
    ...writer,
    write: (events) => writer.write(events).catch(whileRead),
    end(events) {
      try {
        writer.end(events)
      } catch (error) {
        whileRead(error)
      }
    },
  }
}

/** `events`: how many events were sent to the caller. `first`: the text of the first event. */
type CountedCall = { readonly asked: AskedCompletion; events: number; first: string }

async function writeEvents(
  streamed: ReturnType<VerifiedCompletions['stream']>,
  writer: EventWriter,
  counted: CountedCall,
): Promise<AnsweredRecord> {
  const events = await streamed
  let fault: ApiError | null = null
  writer.open()
  for await (const event of events) {
    if (event.kind === 'chunks') {
      if (counted.events === 0) counted.first = firstEvent(event.bytes)
      counted.events += countEvents(event.bytes)
      await writer.write(event.bytes)
    } else if (event.kind === 'fault') fault = event.error
    else {
      const { record, last } = event
      writer.end(streamEndText(last, record))
      return record
    }
  }
  throw fault ?? new TypeError('expected a record or a fault at the end of a stream')
}

/**
 * Settles the permit with the usage in the record, and then the claim. Without a record, the usage
 * is the estimated prompt and one token for each sent event, or 0 if there was no answer.
 */
async function settled(
  { dialect, permit, claim }: Granted,
  counted: CountedCall,
  making: Promise<AnsweredRecord>,
): Promise<AnsweredRecord> {
  const { promptTokens } = counted.asked.size
  try {
    const record = await making
    const usage = DIALECTS[dialect.name]
    const { tokens, prompt } = usedTokensOf(responseOf(record), promptTokens, usage)
    permit.settle(tokens, undefined, prompt)
    await claim?.succeed(null)
    return record
  } catch (error) {
    const { events } = counted
    const isNothing = isWithoutResult(error) && events === 0
    permit.settle(isNothing ? 0 : promptTokens + events, undefined, promptTokens)
    await claim?.fail(error)
    throw error
  }
}

function firstEvent(bytes: Uint8Array): string {
  const text = Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength)
  return text.toString('utf8', 0, text.indexOf(EVENT_END))
}

/** Counts events. An event has about one token. */
function countEvents(bytes: Uint8Array): number {
  const text = Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength)
  let count = 0
  for (
    let at = text.indexOf(EVENT_END);
    at >= 0;
    at = text.indexOf(EVENT_END, at + EVENT_END.length)
  )
    count++
  return count
}

const EVENT_END = '\n\n'

/** Answers with the record of an earlier call, as a stream if this call asked for one. */
async function answerAgain(
  { body: asked, slot, stream }: CompletionCall,
  dialect: VerifiedDialect,
  record: StoredRecord,
): Promise<string | undefined> {
  slot.answer(record.response?.length ?? 0)
  if (!asked.isStream) return createReplyText(record)
  return stream((writer) => dialect.replay(writer, record, asked))
}
