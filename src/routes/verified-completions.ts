import type { Router } from '@koa/router'
import type { Admission } from '../http/admission.ts'
import type { CallSignals } from '../http/call-signals.ts'
import {
  type ApiMiddleware,
  type RequestState,
  type RouteContext,
  type RouteHandler,
  sendJson,
} from '../http/context.ts'
import type { EventWriter } from '../http/event-writer.ts'
import { readJsonBody } from '../http/read-body.ts'
import { callerOf } from '../middleware/authenticate.ts'
import { type ChatRequest, parseChatRequest } from '../schemas/chat-request.ts'
import { CREDENTIAL_HEADER, parseProviderCredential } from '../schemas/provider-credential.ts'
import { createReplyText, proofChunkText } from '../services/record-text.ts'
import type { VerifiedCall, VerifiedCompletions } from '../services/verified-completions.ts'
import { type EventStreamOptions, streamEvents } from './event-stream.ts'

export type VerifiedRouteOptions = EventStreamOptions & {
  readonly completions: VerifiedCompletions
  readonly authenticated: ApiMiddleware
  readonly admission: Admission
  readonly signals: CallSignals
  readonly bodyBytesMax: number
}

/** `POST /v1/verified/chat/completions`: a verified completion, whole or streamed (interface, parts 2.1–2.3 and 6). */
export function addVerifiedCompletionRoutes(
  router: Router<RequestState>,
  options: VerifiedRouteOptions,
): void {
  const { completions, authenticated, admission, signals } = options

  const create: RouteHandler = async (context) => {
    const { accountId } = callerOf(context.state)
    const slot = admission.admit()
    const { abort, done } = signals.open(context.res)
    try {
      const body = await readJsonBody(context.req, context.res, { slot, bytesMax: options.bodyBytesMax })
      const request = parseChatRequest(body)
      const callerCredential = parseProviderCredential(headerOf(context))
      const { requestId } = context.state
      const call = { request, body, callerCredential, context: { accountId, requestId }, abort }
      if (request.isStream)
        await streamEvents(context, options, (writer) => writeEvents(options, writer, { call, request }))
      else sendJson(context, createReplyText(await completions.complete(call)))
    } finally {
      done()
      slot.release()
    }
  }

  router.post('/v1/verified/chat/completions', authenticated, create)
}

type StreamedCall = { readonly call: VerifiedCall; readonly request: ChatRequest }

async function writeEvents(
  { completions }: VerifiedRouteOptions,
  writer: EventWriter,
  { call, request }: StreamedCall,
): Promise<void> {
  const events = await completions.stream(call)
  writer.open()
  for await (const event of events) {
    if (event.kind === 'chunks') await writer.write(event.bytes)
    else if (event.kind === 'fault') writer.fail(event.error)
    else writer.end(`data: ${proofChunkText(event.record, request)}\n\ndata: [DONE]\n\n`)
  }
}

function headerOf(context: RouteContext): string | undefined {
  const header = context.req.headers[CREDENTIAL_HEADER]
  return Array.isArray(header) ? header.join() : header
}
