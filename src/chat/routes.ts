import type { Router } from '@koa/router'
import { addChunk, emptyAssembly, finishAssembly } from '../../attestation/assemble-completion.ts'
import type { JsonObject } from '../../attestation/json/value.ts'
import type { Claim, Idempotency } from '../accounts/idempotency.ts'
import { claimKey, claimOf, keyOf, replayEvents, underClaim } from '../accounts/keyed-call.ts'
import { admitCall } from '../accounts/limit-calls.ts'
import { estimateChatTokens } from '../accounts/limits/estimate.ts'
import type { Permit, RateLimiter } from '../accounts/limits/limiter.ts'
import type { Admission, Slot } from '../api/admission.ts'
import { callerOf } from '../api/authenticate.ts'
import type { CallSignals } from '../api/call-signals.ts'
import {
  type ApiMiddleware,
  type RequestState,
  type RouteContext,
  type RouteHandler,
  sendJson,
} from '../api/context.ts'
import { ApiError, type ErrorCode } from '../api/errors.ts'
import { type EventStreamOptions, streamEvents } from '../api/event-stream.ts'
import type { EventWriter } from '../api/event-writer.ts'
import { readJsonBody } from '../api/read-body.ts'
import { type ChatCall, type ChatCompletions, completionText } from './chat-completions.ts'
import { type ChatRequest, parseChatBody } from './chat-request.ts'

export type ChatRouteOptions = EventStreamOptions & {
  readonly completions: ChatCompletions
  readonly authenticated: ApiMiddleware
  readonly admission: Admission
  readonly signals: CallSignals
  readonly limiter: Pick<RateLimiter, 'admit'>
  readonly idempotency: Idempotency
  readonly bodyBytesMax: number
}

/**
 * Plain chat completions, whole or streamed (interface, 2.1, 2.2 and part 6): `POST /v1/chat/completions`, and the same under
 * `/v1/dashboard`.
 */
export function addChatCompletionRoutes(router: Router<RequestState>, options: ChatRouteOptions): void {
  const { authenticated, admission, signals } = options

  const create: RouteHandler = async (context) => {
    const slot = admission.admit()
    const { abort, done } = signals.open(context.res)
    try {
      const bytes = await readJsonBody(context.req, context.res, { slot, bytesMax: options.bodyBytesMax })
      const { request, value: body } = parseChatBody(bytes)
      const key = keyOf(context)
      const estimate = estimateChatTokens(request.size)
      const permit = await admitCall(context, options.limiter, {
        kind: 'chat',
        model: request.model,
        estimate,
      })
      try {
        const keyed = { key, body: bytes, isVerified: false, abort }
        const claimed = await claimKey(context, options.idempotency, keyed)
        if (claimed?.kind === 'answer')
          await answerAgain(context, options, { request, answer: claimed.answer })
        else await answer(context, options, { request, body, abort, slot, permit, claim: claimOf(claimed) })
      } finally {
        permit.settle(0)
      }
    } finally {
      done()
      slot.release()
    }
  }

  router.post('/v1/chat/completions', authenticated, create)
  router.post('/v1/dashboard/chat/completions', authenticated, create)
}

type AdmittedCall = {
  readonly request: ChatRequest
  readonly body: JsonObject
  readonly abort: AbortController
  readonly slot: Slot
  readonly permit: Permit
  /** Null without an Idempotency-Key. */
  readonly claim: Claim | null
}

async function answer(
  context: RouteContext,
  options: ChatRouteOptions,
  admitted: AdmittedCall,
): Promise<void> {
  const { request, body, abort, slot, permit, claim } = admitted
  const call: ChatCall = {
    request,
    body,
    accountId: callerOf(context.state).accountId,
    requestId: context.state.requestId,
    signal: abort.signal,
    reserve: slot.reserve,
    noteUsage: permit.settle,
  }
  if (request.isStream) {
    const write = (writer: EventWriter) =>
      underClaim(claim, () => writeChunks(options.completions, writer, { call, isKept: claim !== null }))
    await streamEvents(context, options, write, isOutage)
    return
  }
  await underClaim(claim, async () => {
    const text = await options.completions.complete(call)
    sendJson(context, text)
    return text
  })
}

/** Gives the completion that the chunks amount to, when it is to be kept; else null. */
async function writeChunks(
  completions: ChatCompletions,
  writer: EventWriter,
  { call, isKept }: { readonly call: ChatCall; readonly isKept: boolean },
): Promise<string | null> {
  const batches = await completions.stream(call)
  const assembly = emptyAssembly()
  writer.open()
  for await (const texts of batches) {
    await writer.write(texts.map((text) => `data: ${text}\n\n`).join(''))
    if (!isKept) continue
    for (const text of texts) {
      call.reserve(text.length)
      addChunk(assembly, JSON.parse(text))
    }
  }
  writer.end('data: [DONE]\n\n')
  return isKept ? completionText(finishAssembly(assembly)) : null
}

/** The answer that was given before, in the form that is asked for, which is the same. */
async function answerAgain(
  context: RouteContext,
  options: ChatRouteOptions,
  { request, answer: text }: { readonly request: ChatRequest; readonly answer: string },
): Promise<void> {
  if (!request.isStream) {
    sendJson(context, text)
    return
  }
  await streamEvents(context, options, (writer) => replayEvents(writer, text, request))
}

/** That no node can process a streamed request is an error event and no status (interface, parts 6 and 7). */
function isOutage(error: unknown): boolean {
  return error instanceof ApiError && OUTAGES.has(error.code)
}

const OUTAGES: ReadonlySet<ErrorCode> = new Set([
  'no_available_inference_nodes',
  'node_error',
  'node_timeout',
])
