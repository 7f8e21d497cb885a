import { z } from 'zod'
import { DEMANDS_MEMBER, NONCE_FORM } from '../../../attestation/demands.ts'
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
import { type ApiError, CallerLeftError } from '../../api/errors.ts'
import type { EventWriter } from '../../api/event-stream.ts'
import { defineRoute, type Route, type RouteCall } from '../../api/route.ts'
import { type ChatRequest, providersRequestWith } from '../../chat/chat-request.ts'
import { estimateChatTokens, estimatePromptTokens, usedTokensOf } from '../../chat/chat-tokens.ts'
import { chatChunk } from '../../chat/completion-replies.ts'
import { replayEvents } from '../../chat/replay.ts'
import { verifiedCompletion } from '../records/record-replies.ts'
import {
  createReplyText,
  lastChunkText,
  proofChunkText,
  responseOf,
} from '../records/record-text.ts'
import type { AnsweredRecord, StoredRecord } from '../records/records-store.ts'
import { credentialHeaders } from './completion-call.ts'
import { type EncryptedCalls, isEncryptedCall, serveEncryptedCall } from './encrypted-calls.ts'
import type { VerifiedCall, VerifiedCompletions } from './verified-completions.ts'

/** Maximum total size, bytes, of the bodies of all running calls. */
const BODIES_BYTES_MAX = 512 * 1024 * 1024
/**
 * Memory that a waiting call takes in addition to its body: two connections and their queued data.
 * Measured with `npm run bench -- peers --rows open-gateway`.
 */
const CALL_BYTES = 100 * 1024

/** SHA-256 in hex. */
const DIGEST_FORM = /^[0-9a-f]{64}$/

/** Checks only the form of the caller's demands. The enclave checks the demands themselves. */
const verifiedRequest = providersRequestWith({
  [DEMANDS_MEMBER]: z
    .strictObject({
      nonce: z.string().regex(NONCE_FORM).optional(),
      credential: z
        .union([z.literal('operator'), z.strictObject({ sha256: z.string().regex(DIGEST_FORM) })])
        .optional(),
    })
    .describe(
      'What the caller demands of the enclave: hashed with the request, not sent to the provider. `nonce`: 16 to 64 bytes in hex; ' +
        "the receipt's `attempt` then says how often this same call was made. `credential`, beside a nonce: `operator`, or " +
        '`{ "sha256": … }` of the credential in `Fine-Tune-Authorization`; the enclave uses that credential, or refuses the call (`credential_mismatch`).',
    )
    .nullish(),
})

const callHeaders = idempotencyHeaders.extend(credentialHeaders.shape)

/**
 * `POST /v1/verified/chat/completions`: a verified completion, whole or streamed (interface, parts
 * 2.1–2.3 and 6).
 */
export function verifiedCompletionRoutes({
  completions,
  encrypted,
  limiter,
  idempotency,
  bodyBytesMax,
  callsMax,
}: {
  readonly completions: VerifiedCompletions
  readonly encrypted: EncryptedCalls
  readonly limiter: Pick<RateLimiter, 'admit'>
  readonly idempotency: Idempotency<StoredRecord>
  readonly bodyBytesMax: number
  /** Maximum number of calls that run at the same time. Further calls are refused with 503. */
  readonly callsMax: number
}): readonly Route[] {
  return [
    defineRoute({
      method: 'POST',
      path: '/v1/verified/chat/completions',
      tag: 'Verified chat',
      summary: 'Complete a chat at an external provider, with evidence',
      description:
        'The answer is hashed and signed inside the enclave, and stored with its anchor, before it is given. Streamed, the proof is in the last chunk. ' +
        'This gateway reads request, answer and provider credential, unless the call is encrypted (EHBP, with `Ehbp-Encapsulated-Key` and `Affidavit-Notary`): ' +
        'then it forwards data that it cannot read. Errors before an enclave has opened the call are not encrypted, and an unknown key gives a 422 of ' +
        'type `application/problem+json`: fetch the keys again. The evidence shows that these words were exchanged, not who asked.',
      scope: 'inference',
      headers: callHeaders,
      body: {
        name: 'VerifiedChatCompletionRequest',
        schema: verifiedRequest,
        bytesMax: bodyBytesMax,
        example: { model: 'demo/echo', messages: [{ role: 'user', content: 'Hello' }] },
      },
      reply: { name: 'VerifiedCompletion', schema: verifiedCompletion },
      events: { name: 'ChatCompletionChunk', schema: chatChunk },
      errors: [
        ...IDEMPOTENCY_ERRORS,
        'rate_limit_exceeded',
        'insufficient_quota',
        'unsupported_model',
        'provider_credential_missing',
        'provider_refused',
        'provider_error',
        'provider_unreachable',
        'provider_timeout',
        'enclave_unavailable',
        'commit_delayed',
        'completion_lost',
        'overloaded',
        'bad_ciphertext',
        'replayed_call',
        'unsupported_request_parameter',
        'content_erased',
        'content_key_missing',
        'content_unreadable',
      ],
      admission: createAdmission({
        callsMax,
        bytesMax: BODIES_BYTES_MAX,
        callBytes: CALL_BYTES,
      }),
      isAbortable: true,
      raw: {
        isFor: isEncryptedCall,
        handler: (call) => serveEncryptedCall(encrypted, call),
      },
      async handler(call) {
        const { context, body: request, bytes, headers, abort } = call
        const { model } = request
        const estimate = estimateChatTokens(request.size)
        const promptTokens = estimatePromptTokens(request.size)
        const asked = { kind: 'verified', model, estimate, promptTokens } as const
        const permit = await admitCall(context, limiter, asked)
        try {
          const key = headers['idempotency-key']
          const keyed = { key, body: bytes, isVerified: true, model, abort }
          const claimed = await claimKey(context, idempotency, keyed)
          return claimed?.kind === 'record'
            ? await answerAgain(call, claimed.record)
            : await answer(completions, call, { permit, claim: claimOf(claimed) })
        } finally {
          permit.settle(0)
        }
      },
    }),
  ]
}

type CompletionCall = RouteCall<unknown, unknown, z.output<typeof callHeaders>, ChatRequest>

/**
 * The permit from the limits, and the claim of the call's Idempotency-Key. A call gets both before
 * its start. They are settled at its end.
 */
type Granted = {
  readonly permit: Permit
  /** Null for a call without an Idempotency-Key. */
  readonly claim: Claim | null
}

async function answer(
  completions: VerifiedCompletions,
  { context, caller, headers, body: request, bytes, abort, stream }: CompletionCall,
  granted: Granted,
): Promise<string | undefined> {
  const { claim } = granted
  const { accountId } = caller()
  const { requestId } = context.state
  const call: VerifiedCall = {
    request,
    body: bytes,
    callerCredential: headers['fine-tune-authorization'] ?? null,
    abort: claim === null ? abort : outlivingCaller(abort),
    context: { accountId, requestId, ...(claim === null ? {} : { callId: claim.callId }) },
    notary: claim?.notary ?? null,
  }
  const counted = { request, chunks: 0 }
  if (!request.isStream)
    return createReplyText(await settled(granted, counted, completions.complete(call)))
  const asked = completions.stream(call)
  return stream((writer) => {
    const kept = claim === null ? writer : outlivingReader(writer)
    return settled(granted, counted, writeEvents(asked, kept, counted))
  })
}

/**
 * Returns a controller that is aborted with `abort`, except when the caller leaves. The call then
 * continues, and the caller gets the answer by a repeat with the same key.
 */
function outlivingCaller(abort: AbortController): AbortController {
  const kept = new AbortController()
  const { signal } = abort
  const follow = () => {
    if (!(signal.reason instanceof CallerLeftError)) kept.abort(signal.reason)
  }
  signal.addEventListener('abort', follow, { signal: kept.signal })
  if (signal.aborted) follow()
  return kept
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

/** A call, and the number of answer chunks that were received. */
type CountedCall = { readonly request: ChatRequest; chunks: number }

async function writeEvents(
  asked: ReturnType<VerifiedCompletions['stream']>,
  writer: EventWriter,
  counted: CountedCall,
): Promise<AnsweredRecord> {
  const events = await asked
  let fault: ApiError | null = null
  writer.open()
  for await (const event of events) {
    if (event.kind === 'chunks') {
      counted.chunks += countEvents(event.bytes)
      await writer.write(event.bytes)
    } else if (event.kind === 'fault') fault = event.error
    else {
      const { record, last } = event
      const text =
        last === null ? proofChunkText(record, counted.request) : lastChunkText(last, record)
      writer.end(`data: ${text}\n\ndata: [DONE]\n\n`)
      return record
    }
  }
  throw fault ?? new TypeError('expected a record or a fault at the end of a stream')
}

/**
 * Returns the record of a running call. Settles the permit with the usage in the record, and then
 * the claim. Without a record, the permit is settled with the prompt and the received chunks, or
 * with 0 tokens if the provider made no answer.
 */
async function settled(
  { permit, claim }: Granted,
  counted: CountedCall,
  making: Promise<AnsweredRecord>,
): Promise<AnsweredRecord> {
  const promptTokens = estimatePromptTokens(counted.request.size)
  try {
    const record = await making
    const { tokens, prompt } = usedTokensOf(responseOf(record), promptTokens)
    permit.settle(tokens, undefined, prompt)
    await claim?.succeed(null)
    return record
  } catch (error) {
    const { chunks } = counted
    const isNothing = isWithoutResult(error) && chunks === 0
    permit.settle(isNothing ? 0 : promptTokens + chunks, undefined, promptTokens)
    await claim?.fail(error)
    throw error
  }
}

/** Counts the events in these bytes. Each event holds about one token. */
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

/** Sends the stored answer again, in the same form: whole or streamed. */
async function answerAgain(
  { body: { isStream, includesUsage }, stream }: CompletionCall,
  record: StoredRecord,
): Promise<string | undefined> {
  if (!isStream) return createReplyText(record)
  const withProof = (chunk: string) => lastChunkText(chunk, record)
  const response = responseOf(record)
  return stream((writer) => replayEvents(writer, response, { includesUsage, withProof }))
}
