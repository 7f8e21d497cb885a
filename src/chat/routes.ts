import {
  addChunk,
  emptyAssembly,
  finishAssembly,
} from '#attestation/dialects/chat/assemble-completion.ts'
import { isJsonObject } from '#attestation/json/value.ts'
import {
  type Claim,
  claimKey,
  claimOf,
  IDEMPOTENCY_ERRORS,
  type Idempotency,
  idempotencyHeaders,
  underClaim,
} from '../accounts/idempotency.ts'
import { admitCall, type Permit, type RateLimiter } from '../accounts/limits/limiter.ts'
import { createAdmission } from '../api/admission.ts'
import { ApiError, type ErrorCode } from '../api/errors.ts'
import type { EventWriter } from '../api/event-stream.ts'
import { defineRoute, type Route, type RouteCall } from '../api/route.ts'
import { type ChatCall, type ChatCompletions, completionText } from './chat-completions.ts'
import { CHAT_CALL_ERRORS, CHAT_LIMITS } from './chat-limits.ts'
import { type ChatRequest, chatRequest } from './chat-request.ts'
import { estimateChatTokens } from './chat-tokens.ts'
import { chatChunk, chatCompletion } from './completion-replies.ts'
import { replayEvents } from './replay.ts'

/** Interface, 2.1, 2.2 and part 6. */
export function chatRoutes({
  completions,
  limiter,
  idempotency,
  bodyBytesMax,
}: {
  readonly completions: ChatCompletions
  readonly limiter: Pick<RateLimiter, 'admit'>
  readonly idempotency: Idempotency
  readonly bodyBytesMax: number
}): readonly Route[] {
  const admission = createAdmission(CHAT_LIMITS)
  const declare = (path: string, summary: string) =>
    defineRoute({
      method: 'POST',
      path,
      tag: 'Chat',
      summary,
      scope: 'inference',
      headers: idempotencyHeaders,
      body: {
        name: 'ChatCompletionRequest',
        schema: chatRequest,
        bytesMax: bodyBytesMax,
        keepsDigits: true,
        example: { model: 'demo/echo', messages: [{ role: 'user', content: 'Hello' }] },
      },
      reply: { name: 'ChatCompletion', schema: chatCompletion },
      events: { name: 'ChatCompletionChunk', schema: chatChunk },
      errors: [...IDEMPOTENCY_ERRORS, ...CHAT_CALL_ERRORS],
      admission,
      isAbortable: true,
      async handler(call) {
        const { context, body: request, bytes, headers, abort } = call
        const permit = await admitCall(context, limiter, {
          kind: 'chat',
          model: request.model,
          ...estimateChatTokens(request.size),
        })
        try {
          const key = headers['idempotency-key']
          const keyed = { key, body: bytes, isVerified: false, abort }
          const claimed = await claimKey(context, idempotency, keyed)
          return claimed?.kind === 'answer'
            ? await answerAgain(call, claimed.answer)
            : await answer(completions, call, { permit, claim: claimOf(claimed) })
        } finally {
          permit.settle(0)
        }
      },
    })
  return [
    declare('/v1/chat/completions', 'Complete a chat on a contributed node'),
    declare('/v1/dashboard/chat/completions', 'The same, for a dashboard'),
  ]
}

type ChatRouteCall = RouteCall<unknown, unknown, unknown, ChatRequest>

async function answer(
  completions: ChatCompletions,
  { context, caller, body: request, json, abort, slot, stream }: ChatRouteCall,
  // `claim` is null if the call has no Idempotency-Key.
  { permit, claim }: { readonly permit: Permit; readonly claim: Claim | null },
): Promise<string | undefined> {
  const call: ChatCall = {
    request,
    // The schema accepts only objects, so `{}` is never used.
    body: isJsonObject(json) ? json : {},
    accountId: caller().accountId,
    requestId: context.state.requestId,
    signal: abort.signal,
    reserve: slot.reserve,
    recordUsage: (tokens, prompt) => permit.settle(tokens, undefined, prompt),
  }
  if (request.isStream)
    return stream(async (writer) => {
      await underClaim(claim, () =>
        writeChunks(completions, writer, { call, isKept: claim !== null }),
      )
      // The end is written after the answer is stored: a caller who has seen the end may send the
      // same key again and gets the stored answer.
      writer.end('data: [DONE]\n\n')
    }, isOutage)
  return underClaim(claim, () => completions.complete(call))
}

/** Returns the completion if it must be stored, otherwise null. */
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
  return isKept ? completionText(finishAssembly(assembly)) : null
}

/** Sends the stored answer again, as a stream if the caller asks for one. */
async function answerAgain(
  { body: request, slot, stream }: ChatRouteCall,
  text: string,
): Promise<string | undefined> {
  slot.answer(text.length)
  return request.isStream ? stream((writer) => replayEvents(writer, text, request)) : text
}

/** A stream reports these errors as an error event, not as a status (interface, parts 6 and 7). */
function isOutage(error: unknown): boolean {
  return error instanceof ApiError && OUTAGES.has(error.code)
}

const OUTAGES: ReadonlySet<ErrorCode> = new Set([
  'no_available_inference_nodes',
  'node_error',
  'node_timeout',
])
