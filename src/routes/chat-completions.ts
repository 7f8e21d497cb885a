import type { Router } from '@koa/router'
import { ApiError, type ErrorCode } from '../errors.ts'
import type { Admission } from '../http/admission.ts'
import type { CallSignals } from '../http/call-signals.ts'
import { type ApiMiddleware, type RequestState, type RouteHandler, sendJson } from '../http/context.ts'
import type { EventWriter } from '../http/event-writer.ts'
import { readJsonBody } from '../http/read-body.ts'
import { callerOf } from '../middleware/authenticate.ts'
import { parseChatBody } from '../schemas/chat-request.ts'
import type { ChatCall, ChatCompletions } from '../services/chat-completions.ts'
import { type EventStreamOptions, streamEvents } from './event-stream.ts'

export type ChatRouteOptions = EventStreamOptions & {
  readonly completions: ChatCompletions
  readonly authenticated: ApiMiddleware
  readonly admission: Admission
  readonly signals: CallSignals
  readonly bodyBytesMax: number
}

/**
 * Plain chat completions, whole or streamed (interface, 2.1, 2.2 and part 6): `POST /v1/chat/completions`, and the same under
 * `/v1/dashboard`.
 */
export function addChatCompletionRoutes(router: Router<RequestState>, options: ChatRouteOptions): void {
  const { completions, authenticated, admission, signals } = options

  const create: RouteHandler = async (context) => {
    const { accountId } = callerOf(context.state)
    const slot = admission.admit()
    const { abort, done } = signals.open(context.res)
    try {
      const bytes = await readJsonBody(context.req, context.res, { slot, bytesMax: options.bodyBytesMax })
      const { request, value: body } = parseChatBody(bytes)
      const { requestId } = context.state
      const call = { request, body, accountId, requestId, signal: abort.signal, reserve: slot.reserve }
      if (!request.isStream) sendJson(context, await completions.complete(call))
      else await streamEvents(context, options, (writer) => writeChunks(completions, writer, call), isOutage)
    } finally {
      done()
      slot.release()
    }
  }

  router.post('/v1/chat/completions', authenticated, create)
  router.post('/v1/dashboard/chat/completions', authenticated, create)
}

async function writeChunks(completions: ChatCompletions, writer: EventWriter, call: ChatCall): Promise<void> {
  const chunks = await completions.stream(call)
  writer.open()
  for await (const texts of chunks) await writer.write(texts.map((text) => `data: ${text}\n\n`).join(''))
  writer.end('data: [DONE]\n\n')
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
