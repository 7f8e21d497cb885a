import { z } from 'zod'
import { DIALECTS } from '#attestation/dialects/dialects.ts'
import { findGiven } from '#attestation/dialects/refused-member.ts'
import { isJsonObject, type Json, type JsonObject } from '#attestation/json/value.ts'
import { MODEL_LENGTH_MAX } from '#enclave/protocol/chat-form.ts'
import {
  type Claim,
  claimKey,
  claimOf,
  IDEMPOTENCY_ERRORS,
  type Idempotency,
  idempotencyHeaders,
  underClaim,
} from '../accounts/idempotency.ts'
import { admitCall, type RateLimiter } from '../accounts/limits/limiter.ts'
import { createAdmission } from '../api/admission.ts'
import { ApiError, unfitFor } from '../api/errors.ts'
import type { EventWriter } from '../api/event-stream.ts'
import { ANTHROPIC_FACE, type Face, OPENAI_FACE, RESPONSES_FACE } from '../api/faces.ts'
import { defineRoute, type Route, type RouteCall } from '../api/route.ts'
import { boundedText } from '../api/schemas.ts'
import { type NodeDialect, pathOfDialect } from '../nodes/protocol/dialects.ts'
import { CHAT_CALL_ERRORS, CHAT_LIMITS } from './chat-limits.ts'
import { estimateDialectTokens } from './chat-tokens.ts'
import type { DialectCall, DialectCalls } from './dialect-calls.ts'

/** Contributed nodes get the request unchanged. */
type PlainDialect = {
  readonly dialect: NodeDialect
  readonly face: Face
  readonly summary: string
  readonly schemas: Readonly<Record<'request' | 'reply' | 'event', string>>
  readonly example: object
  /** Finds a member that refers to content or servers outside the request. Nodes lack both. */
  readonly findHidden: (typeof DIALECTS)['responses' | 'messages']['findHidden']
}

/** A backend would call the addresses of these servers for the caller, from the node's network. */
const REMOTE_TOOLS: ReadonlyMap<string, string> = new Map([
  ['mcp_servers', 'no node calls MCP servers: call them yourself, and send their tools in `tools`'],
])

const PLAIN_DIALECTS: readonly PlainDialect[] = [
  {
    dialect: 'responses',
    face: RESPONSES_FACE,
    summary: "OpenAI's Responses on a contributed node",
    schemas: { request: 'ResponsesRequest', reply: 'Response', event: 'ResponseEvent' },
    example: { model: 'demo/echo', input: 'Hello' },
    findHidden: DIALECTS.responses.findHidden,
  },
  {
    dialect: 'messages',
    face: ANTHROPIC_FACE,
    summary: "Anthropic's Messages on a contributed node",
    schemas: { request: 'MessagesRequest', reply: 'Message', event: 'MessageEvent' },
    example: {
      model: 'demo/echo',
      max_tokens: 100,
      messages: [{ role: 'user', content: 'Hello' }],
    },
    findHidden: (asked) => DIALECTS.messages.findHidden(asked) ?? findGiven(asked, REMOTE_TOOLS),
  },
  {
    dialect: 'completions',
    face: OPENAI_FACE,
    summary: 'Complete a text on a contributed node',
    schemas: { request: 'TextRequest', reply: 'TextCompletion', event: 'TextChunk' },
    example: { model: 'demo/echo', prompt: 'Hello' },
    findHidden: () => null,
  },
]

/** The node's backend checks the other members. */
const request = z.looseObject({
  model: boundedText({ min: 1, max: MODEL_LENGTH_MAX }),
  stream: z.boolean().nullish(),
})
const answer = z.looseObject({})

type Asked = z.output<typeof request>

/** Only nodes whose backend serves the path get these calls. A query is ignored. */
export function dialectRoutes({
  calls,
  limiter,
  idempotency,
  bodyBytesMax,
}: {
  readonly calls: DialectCalls
  readonly limiter: Pick<RateLimiter, 'admit'>
  readonly idempotency: Idempotency
  readonly bodyBytesMax: number
}): readonly Route[] {
  const admission = createAdmission(CHAT_LIMITS)
  return PLAIN_DIALECTS.map(({ dialect, face, summary, schemas, example, findHidden }) =>
    defineRoute({
      method: 'POST',
      path: pathOfDialect(dialect),
      face,
      tag: 'Chat',
      summary,
      description:
        "The events of a stream are those of the node's backend, unchanged. If the backend " +
        'reports its own failure, its report ends the stream: the event `error` or ' +
        '`response.failed`, or data with a member `error`, after which `[DONE]` can follow.',
      scope: 'inference',
      headers: idempotencyHeaders,
      body: {
        name: schemas.request,
        schema: request,
        bytesMax: bodyBytesMax,
        example,
        keepsDigits: true,
      },
      reply: { name: schemas.reply, schema: answer },
      events: { name: schemas.event, schema: answer },
      errors: [...IDEMPOTENCY_ERRORS, ...CHAT_CALL_ERRORS, 'unsupported_dialect'],
      admission,
      isAbortable: true,
      async handler(call) {
        const { context, body, bytes, headers, abort } = call
        const asked = requestIn(call.json)
        const hidden = findHidden(asked)
        if (hidden !== null) {
          const param = hidden.path.join('.')
          const message = `${param} is not supported: ${hidden.why}`
          throw new ApiError('unsupported_request_parameter', message, { param })
        }
        const estimate = estimateDialectTokens(dialect, asked)
        const { promptTokens } = estimate
        const { model } = body
        const permit = await admitCall(context, limiter, { kind: 'chat', model, ...estimate })
        try {
          const key = headers['idempotency-key']
          const claimed = await claimKey(context, idempotency, {
            key,
            body: bytes,
            isVerified: false,
            abort,
          })
          if (claimed?.kind === 'answer') return await answerAgain(call, claimed.answer)
          const asking = askingOf(call, { dialect, request: asked, promptTokens })
          return await answerNow(calls, call, {
            claim: claimOf(claimed),
            asking: {
              ...asking,
              recordUsage: (tokens, prompt) => permit.settle(tokens, undefined, prompt),
            },
          })
        } finally {
          permit.settle(0)
        }
      },
    }),
  )
}

type DialectRouteCall = RouteCall<unknown, unknown, unknown, Asked>

function requestIn(json: Json): JsonObject {
  if (!isJsonObject(json)) throw unfitFor('body', 'model', 'Input should be a valid dictionary')
  return json
}

function askingOf(
  { context, caller, body, abort, slot }: DialectRouteCall,
  given: Pick<DialectCall, 'dialect' | 'request' | 'promptTokens'>,
): Omit<DialectCall, 'recordUsage'> {
  return {
    ...given,
    model: body.model,
    accountId: caller().accountId,
    requestId: context.state.requestId,
    signal: abort.signal,
    reserve: slot.reserve,
  }
}

async function answerNow(
  calls: DialectCalls,
  { body, stream }: DialectRouteCall,
  { asking, claim }: { readonly asking: DialectCall; readonly claim: Claim | null },
): Promise<string | undefined> {
  if (body.stream !== true) return underClaim(claim, () => calls.complete(asking))
  const streamed = calls.stream(asking)
  return stream(
    async (writer) => {
      let last = ''
      const failed = new ApiError('node_error', "The node's backend failed")
      const answered = underClaim(claim, async () => {
        const kept: string[] = []
        for await (const { text, isLast } of streamed.texts) {
          // `last` is sent only after the answer is stored.
          if (isLast) last += text
          else await writer.write(text)
          if (claim === null) continue
          asking.reserve(text.length)
          kept.push(text)
        }
        if (streamed.isFailed()) throw failed
        return claim === null ? null : kept.join('')
      })
      await answered.catch((error: unknown) => {
        // The caller has the backend's own error event, and gets no second one.
        if (error !== failed) throw error
      })
      writer.end(last)
    },
    undefined,
    streamed.soFar,
  )
}

/** Sends the stored answer again. A stored stream has all events. */
async function answerAgain(
  { body, slot, stream }: DialectRouteCall,
  text: string,
): Promise<string | undefined> {
  slot.answer(text.length)
  if (body.stream !== true) return text
  return stream(async (writer: EventWriter) => writer.end(text))
}
