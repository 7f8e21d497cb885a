import type { IncomingHttpHeaders } from 'node:http'
import { z } from 'zod'
import {
  agentStatusOf,
  anthropicError,
  anthropicStatusOf,
  openAiError,
} from '#attestation/dialects/error-forms.ts'
import type { JsonObject } from '#attestation/json/value.ts'
import { ApiError, asApiError, type ErrorReply, errorReply, ValidationError } from './errors.ts'

/**
 * What depends on the dialect of a route: the form of errors, of limits and of lists of models. No
 * other code asks for the name of a dialect.
 */
export type Face = {
  statusOf(error: Failure): number
  /** True if clients act on the error only when it comes as an event of a stream. */
  isEvent(error: unknown): boolean
  /** Returns the answer for any thrown value, as errorReply does. */
  errorReply(error: unknown, call: FacedCall): ErrorReply
  /**
   * The events that end a stream with an error. `soFar`: what the caller has received, or null if
   * the route does not state this or the caller has received nothing.
   */
  errorEvents(error: ApiError, call: FacedCall, soFar: StreamSoFar | null): string
  callHeaders(call: FacedCall): Readonly<Record<string, string>>
  /** `nowMs`: Unix milliseconds. */
  limitHeaders(
    what: 'requests' | 'tokens',
    left: { readonly limit: number; readonly remaining: number; readonly resetSeconds: number },
    nowMs: number,
  ): Readonly<Record<string, string>>
  modelList<List extends { readonly data: readonly FacedModel[] }>(list: List): object
  model(model: FacedModel): object
  /** True if `x-api-key` may hold the API key instead of `Authorization`. */
  readonly readsApiKeyHeader: boolean
  /** True if clients first ask for a WebSocket. They are answered with 426, and use POST. */
  readonly refusesWebSockets: boolean
  /** For the documentation. Null: the interface's error bodies (interface, part 7). */
  readonly error: { readonly name: string; readonly schema: z.ZodType } | null
  /** For the documentation. */
  readonly streamRules: string
}

type FacedCall = { readonly requestId: string; readonly startedAtMs: number }

/** What a caller has received of a stream in the dialect Responses. */
export type StreamSoFar = {
  /** The response in the stream's first event, or a newer state. */
  readonly response: JsonObject
  /** Sequence number of the next event. */
  readonly sequence: number
}

/** `created`: Unix seconds. */
type FacedModel = { readonly id: string; readonly name: string; readonly created: number }

/** A function chooses the face by the headers of the request. */
export type FaceChoice = Face | ((headers: IncomingHttpHeaders) => Face)

/** An error in OpenAI's form. The other faces make their errors from this form. */
type ErrorObject = {
  readonly message: string
  readonly type: string
  readonly param: string | null
  readonly code: string
  readonly provider_code?: string
  readonly refusal?: JsonObject
}

const openAiLimits: Face['limitHeaders'] = (what, { limit, remaining, resetSeconds }) => ({
  [`x-ratelimit-limit-${what}`]: String(limit),
  [`x-ratelimit-remaining-${what}`]: String(remaining),
  [`x-ratelimit-reset-${what}`]: `${resetSeconds}s`,
})

/** The form alone: the caller verifies the signature. */
export const SIGNED_REFUSAL = z
  .strictObject({
    request_hash: z.string(),
    notary: z.string(),
    attempt: z.int().min(0),
    code: z.string(),
    at: z.int().min(0),
    signature: z.string().regex(/^0x[0-9a-f]{130}$/),
  })
  .describe('Signed by the enclave: it made nothing. Only for a request with a nonce.')

/** The interface's own form, for OpenAI's clients (interface, part 7). */
export const OPENAI_FACE: Face = {
  statusOf: ({ status }) => status,
  isEvent: () => false,
  errorReply,
  errorEvents: (error) => eventText('error', errorReply(error).body),
  callHeaders: () => ({}),
  limitHeaders: openAiLimits,
  modelList: (list) => ({ object: 'list', ...list }),
  model: (model) => model,
  readsApiKeyHeader: false,
  refusesWebSockets: false,
  error: null,
  streamRules:
    'A stream ends with the data [DONE]. A failed stream ends without it, with `event: error` and an Error as its data.',
}

/** OpenAI's Responses, in the form that agents read. */
export const RESPONSES_FACE: Face = {
  ...OPENAI_FACE,
  statusOf: facedAgentStatus,
  // Codex compacts its context upon response.failed alone.
  isEvent: (error) => error instanceof ApiError && error.isInStream,
  errorReply(error) {
    return agentReply(this, error, openAiError(errorObjectOf(error)))
  },
  errorEvents(error, call, soFar) {
    const { code = null, message = null } = openAiError(errorObjectOf(error)).error
    const response = soFar?.response ?? startedResponse(call)
    const failed = { ...response, status: 'failed', error: { code, message } }
    const begin = soFar === null ? [['response.created', response] as const] : []
    return [...begin, ['response.failed', failed] as const]
      .map(([type, shown], place) => {
        const sequence_number = (soFar?.sequence ?? 0) + place
        return eventText(type, JSON.stringify({ type, sequence_number, response: shown }))
      })
      .join('')
  },
  readsApiKeyHeader: true,
  refusesWebSockets: true,
  error: {
    name: 'ResponsesError',
    schema: z.strictObject({
      error: z.strictObject({
        message: z.string(),
        type: z.string(),
        param: z.string().nullable(),
        code: z.string(),
        refusal: SIGNED_REFUSAL.optional(),
      }),
    }),
  },
  streamRules: 'A stream ends with response.completed, response.incomplete or response.failed.',
}

/** Anthropic's Messages. `error.code` is an addition: the code of this interface. */
export const ANTHROPIC_FACE: Face = {
  statusOf: (failure) => {
    const status = facedAgentStatus(failure)
    return status === 400 ? 400 : anthropicStatusOf(failure)
  },
  isEvent: () => false,
  errorReply(error, { requestId }) {
    return agentReply(this, error, requestError(this, error, requestId))
  },
  errorEvents(error, { requestId }) {
    return eventText('error', JSON.stringify(requestError(this, error, requestId)))
  },
  callHeaders: ({ requestId }) => ({ 'request-id': requestId }),
  limitHeaders(what, left, nowMs) {
    const reset = new Date(nowMs + left.resetSeconds * 1000).toISOString()
    const names = what === 'tokens' ? ['input-tokens', 'output-tokens'] : [what]
    const headers = names.flatMap((name) => [
      [`anthropic-ratelimit-${name}-limit`, String(left.limit)],
      [`anthropic-ratelimit-${name}-remaining`, String(left.remaining)],
      [`anthropic-ratelimit-${name}-reset`, reset.replace(/\.\d+Z$/, 'Z')],
    ])
    return { ...openAiLimits(what, left, nowMs), ...Object.fromEntries(headers) }
  },
  modelList({ data }) {
    const ids = data.map(({ id }) => id)
    const [first_id = null, last_id = null] = [ids.at(0), ids.at(-1)]
    return { data: data.map(anthropicModel), has_more: false, first_id, last_id }
  },
  model: anthropicModel,
  readsApiKeyHeader: true,
  refusesWebSockets: false,
  error: {
    name: 'AnthropicError',
    schema: z.strictObject({
      type: z.literal('error'),
      error: z.strictObject({
        type: z.string(),
        message: z.string(),
        code: z.string(),
        details: z
          .strictObject({ error_code: z.string(), unsupported: z.array(z.string()) })
          .optional(),
        refusal: SIGNED_REFUSAL.optional(),
      }),
      request_id: z.string(),
    }),
  },
  streamRules:
    'A stream ends with message_stop. A failed stream ends without it, with `event: error` and an AnthropicError as its data.',
}

/** Every path below has Anthropic's face, even if there is nothing at the path. */
const ANTHROPIC_BASE = '/v1/verified/anthropic/'

/** Chooses the face for paths that OpenAI's and Anthropic's clients have in common. */
export function faceByVersion(headers: IncomingHttpHeaders): Face {
  return headers['anthropic-version'] === undefined ? OPENAI_FACE : ANTHROPIC_FACE
}

export function createFaces(
  routes: readonly { readonly path: string; readonly face?: FaceChoice }[],
): (path: string, headers: IncomingHttpHeaders) => Face {
  const known = routes.flatMap(({ path, face }) => {
    const start = /^[^:*]*/.exec(path)?.[0] ?? path
    return face === undefined ? [] : [{ start, isWhole: start === path, face }]
  })
  const chosen = [...known, { start: ANTHROPIC_BASE, isWhole: false, face: ANTHROPIC_FACE }]
  return (path, headers) => {
    const trimmed = path.replace(/(.)\/$/, '$1')
    const face = chosen.find(({ start, isWhole }) =>
      isWhole ? trimmed === start : trimmed.startsWith(start),
    )?.face
    return faceFor(face, headers)
  }
}

export function faceFor(face: FaceChoice | undefined, headers: IncomingHttpHeaders): Face {
  return (typeof face === 'function' ? face(headers) : face) ?? OPENAI_FACE
}

type Failure = Pick<ApiError, 'status' | 'shouldRetry' | 'providerStatus'> & {
  readonly code: string
}

/** A request that alone exceeds a limit gets 400, because a retry cannot help. */
function facedAgentStatus({ status, code, shouldRetry }: Failure): number {
  const isTooLarge = code === 'rate_limit_exceeded' && !shouldRetry
  return isTooLarge ? 400 : agentStatusOf({ status, code })
}

function requestError(face: Face, error: unknown, request_id: string): object {
  return {
    ...anthropicError({ ...errorObjectOf(error), status: facedStatus(face, error) }),
    request_id,
  }
}

function anthropicModel({ id, name, created }: FacedModel): object {
  const created_at = new Date(created * 1000).toISOString().replace(/\.\d+Z$/, 'Z')
  return { type: 'model', id, display_name: name, created_at }
}

/**
 * Returns the first state of a response that failed without events: clients need
 * `response.created`.
 */
function startedResponse({ requestId, startedAtMs }: FacedCall): JsonObject {
  return {
    id: `resp_${requestId}`,
    object: 'response',
    created_at: Math.floor(startedAtMs / 1000),
    status: 'in_progress',
    error: null,
    incomplete_details: null,
    output: [],
  }
}

function agentReply(face: Face, error: unknown, body: object): ErrorReply {
  const { headers } = errorReply(error)
  return { status: facedStatus(face, error), headers, body: JSON.stringify(body) }
}

function facedStatus(face: Face, error: unknown): number {
  return error instanceof ValidationError ? 400 : face.statusOf(asApiError(error))
}

function errorObjectOf(error: unknown): ErrorObject {
  return JSON.parse(errorReply(error).body).error
}

function eventText(event: string, data: string): string {
  return `event: ${event}\ndata: ${data}\n\n`
}
