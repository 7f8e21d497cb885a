import type { Router } from '@koa/router'
import { isWithoutResult } from '../accounts/call-outcome.ts'
import { usedTokensOf } from '../accounts/completion-usage.ts'
import type { Claim, Idempotency } from '../accounts/idempotency.ts'
import { claimKey, claimOf, keyOf, replayEvents, underClaim } from '../accounts/keyed-call.ts'
import { admitCall } from '../accounts/limit-calls.ts'
import { estimateChatTokens, estimatePromptTokens } from '../accounts/limits/estimate.ts'
import type { Permit, RateLimiter } from '../accounts/limits/limiter.ts'
import type { Admission } from '../api/admission.ts'
import { callerOf } from '../api/authenticate.ts'
import type { CallSignals } from '../api/call-signals.ts'
import {
  type ApiMiddleware,
  type RequestState,
  type RouteContext,
  type RouteHandler,
  sendJson,
} from '../api/context.ts'
import type { ApiError } from '../api/errors.ts'
import { type EventStreamOptions, streamEvents } from '../api/event-stream.ts'
import type { EventWriter } from '../api/event-writer.ts'
import { readJsonBody } from '../api/read-body.ts'
import { type ChatRequest, parseChatRequest } from '../chat/chat-request.ts'
import { CREDENTIAL_HEADER, parseProviderCredential } from './provider-credential.ts'
import { createReplyText, lastChunkText, proofChunkText } from './record-text.ts'
import type { StoredRecord } from './records-store.ts'
import type { VerifiedCall, VerifiedCompletions } from './verified-completions.ts'

export type VerifiedRouteOptions = EventStreamOptions & {
  readonly completions: VerifiedCompletions
  readonly authenticated: ApiMiddleware
  readonly admission: Admission
  readonly signals: CallSignals
  readonly limiter: Pick<RateLimiter, 'admit'>
  readonly idempotency: Idempotency
  readonly bodyBytesMax: number
}

/** `POST /v1/verified/chat/completions`: a verified completion, whole or streamed (interface, parts 2.1–2.3 and 6). */
export function addVerifiedCompletionRoutes(
  router: Router<RequestState>,
  options: VerifiedRouteOptions,
): void {
  const { authenticated, admission, signals } = options

  const create: RouteHandler = async (context) => {
    const slot = admission.admit()
    const { abort, done } = signals.open(context.res)
    try {
      const body = await readJsonBody(context.req, context.res, { slot, bytesMax: options.bodyBytesMax })
      const request = parseChatRequest(body)
      const callerCredential = parseProviderCredential(credentialHeaderOf(context))
      const key = keyOf(context)
      const estimate = estimateChatTokens(request.size)
      const permit = await admitCall(context, options.limiter, {
        kind: 'verified',
        model: request.model,
        estimate,
      })
      try {
        const { model } = request
        const keyed = { key, body, isVerified: true, model, abort }
        const claimed = await claimKey(context, options.idempotency, keyed)
        if (claimed?.kind === 'record')
          await answerAgain(context, options, { request, record: claimed.record })
        else {
          const admitted = { request, body, callerCredential, abort, permit, claim: claimOf(claimed) }
          await answer(context, options, admitted)
        }
      } finally {
        permit.settle(0)
      }
    } finally {
      done()
      slot.release()
    }
  }

  router.post('/v1/verified/chat/completions', authenticated, create)
}

type AdmittedCall = {
  readonly request: ChatRequest
  readonly body: Uint8Array
  readonly callerCredential: string | null
  readonly abort: AbortController
  readonly permit: Permit
  /** Null without an Idempotency-Key. */
  readonly claim: Claim | null
}

async function answer(
  context: RouteContext,
  options: VerifiedRouteOptions,
  admitted: AdmittedCall,
): Promise<void> {
  const { claim, request, permit } = admitted
  const { accountId } = callerOf(context.state)
  const { requestId } = context.state
  const callContext = { accountId, requestId, ...(claim === null ? {} : { callId: claim.callId }) }
  const call = { ...admitted, context: callContext, notary: claim?.notary ?? null }
  if (request.isStream) {
    await streamEvents(context, options, (writer) =>
      underClaim(claim, () => writeEvents(options, writer, { call, request, permit })),
    )
    return
  }
  await underClaim(claim, async () => {
    const record = await settling(permit, request, () => options.completions.complete(call))
    sendJson(context, createReplyText(record))
    return null
  })
}

type StreamedCall = {
  readonly call: VerifiedCall
  readonly request: ChatRequest
  readonly permit: Permit
}

async function writeEvents(
  { completions }: VerifiedRouteOptions,
  writer: EventWriter,
  { call, request, permit }: StreamedCall,
): Promise<null> {
  let chunks = 0
  await settling(
    permit,
    request,
    async () => {
      const events = await completions.stream(call)
      let fault: ApiError | null = null
      writer.open()
      for await (const event of events) {
        if (event.kind === 'chunks') {
          chunks += countEvents(event.bytes)
          await writer.write(event.bytes)
        } else if (event.kind === 'fault') fault = event.error
        else {
          const { record, last } = event
          const text = last === null ? proofChunkText(record, request) : lastChunkText(last, record)
          writer.end(`data: ${text}\n\ndata: [DONE]\n\n`)
          return record
        }
      }
      throw fault ?? new TypeError('expected a record or a fault at the end of a stream')
    },
    () => chunks,
  )
  return null
}

/**
 * Settles the permit with what the record says was used. When there is none: nothing, if the provider made nothing; else the
 * prompt and the `chunks` that came, for whoever leaves shortly before the end has had his answer.
 */
async function settling(
  permit: Permit,
  { size }: ChatRequest,
  run: () => Promise<StoredRecord>,
  chunks: () => number = () => 0,
): Promise<StoredRecord> {
  const promptTokens = estimatePromptTokens(size)
  try {
    const record = await run()
    permit.settle(usedTokensOf(record.response, promptTokens))
    return record
  } catch (error) {
    permit.settle(isWithoutResult(error) && chunks() === 0 ? 0 : promptTokens + chunks())
    throw error
  }
}

/** A chunk holds about one token. */
function countEvents(bytes: Uint8Array): number {
  const text = Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength)
  let count = 0
  for (let at = text.indexOf(EVENT_END); at >= 0; at = text.indexOf(EVENT_END, at + EVENT_END.length)) count++
  return count
}

const EVENT_END = '\n\n'

/** The answer that was given before, in the form that is asked for, which is the same. */
async function answerAgain(
  context: RouteContext,
  options: VerifiedRouteOptions,
  { request, record }: { readonly request: ChatRequest; readonly record: StoredRecord },
): Promise<void> {
  if (!request.isStream) {
    sendJson(context, createReplyText(record))
    return
  }
  const { includesUsage } = request
  const withProof = (chunk: string) => lastChunkText(chunk, record)
  await streamEvents(context, options, (writer) =>
    replayEvents(writer, record.response, { includesUsage, withProof }),
  )
}

/** The header with the caller's own credential at the provider, as it came. */
export function credentialHeaderOf(context: RouteContext): string | undefined {
  const header = context.req.headers[CREDENTIAL_HEADER]
  return Array.isArray(header) ? header.join() : header
}
