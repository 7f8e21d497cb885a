import type { Router } from '@koa/router'
import { admitCall } from '../accounts/limit-calls.ts'
import type { RateLimiter } from '../accounts/limits/limiter.ts'
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
import { ApiError } from '../api/errors.ts'
import { boundaryOf, parseMultipart } from '../api/multipart.ts'
import { readBody, readJsonBody } from '../api/read-body.ts'
import { mediaTypeOf } from './image-facts.ts'
import { IMAGE_BYTES_MAX, parseImageEdit, parseImageGeneration } from './image-request.ts'
import type { ImageJob } from './image-source.ts'
import type { Images } from './images.ts'

/** An image, and a little more for the other parts of its form. */
export const EDIT_BYTES_MAX = IMAGE_BYTES_MAX + 1024 * 1024

export const IMAGE_FILES_PATH = '/v1/images/files'

export type ImageRouteOptions = {
  readonly images: Images
  /** Origin under which callers reach this service; null: the one that they called. */
  readonly publicOrigin: string | null
  readonly authenticated: ApiMiddleware
  readonly admission: Admission
  readonly signals: CallSignals
  readonly limiter: Pick<RateLimiter, 'admit'>
  readonly bodyBytesMax: number
  /** Unix milliseconds. */
  readonly now: () => number
}

/** `POST /v1/images/generations` and `/v1/images/edits` (interface, 2.5), and the addresses of what they made. */
export function addImageRoutes(router: Router<RequestState>, options: ImageRouteOptions): void {
  const { images, authenticated, admission, signals, limiter, now } = options

  const answer =
    (readJob: (context: RouteContext, slot: Slot) => Promise<ImageJob>): RouteHandler =>
    async (context) => {
      const slot = admission.admit()
      const { abort, done } = signals.open(context.res)
      try {
        const job = await readJob(context, slot)
        const { model } = job.request
        const permit = await admitCall(context, limiter, { kind: 'images', model, estimate: 0 })
        permit.settle(0)
        const { accountId } = callerOf(context.state)
        const call = { job, accountId, signal: abort.signal, reserve: slot.reserve }
        const origin = options.publicOrigin ?? originOf(context)
        sendJson(context, await images.make(call, (id) => `${origin}${IMAGE_FILES_PATH}/${id}`))
      } finally {
        done()
        slot.release()
      }
    }

  /** Needs no key, but the id that only whoever asked for the image was told. */
  const show: RouteHandler = async (context) => {
    const image = await images.find(String(context.params.id))
    const isRead = context.method === 'GET'
    const content = isRead ? ((await image?.open()) ?? null) : null
    if (image === null || (isRead && content === null))
      throw new ApiError('not_found', 'There is no such image, or no longer')
    const leftSeconds = Math.max(0, Math.floor((image.expiresAtMs - now()) / 1000))
    context.status = 200
    context.set('content-type', mediaTypeOf(image.type))
    context.set('cache-control', `private, max-age=${leftSeconds}, immutable`)
    if (content !== null) context.body = content
    context.set('content-length', String(image.length))
  }

  router.post('/v1/images/generations', authenticated, answer(readGeneration))
  router.post('/v1/images/edits', authenticated, answer(readEdit))
  router.get(`${IMAGE_FILES_PATH}/:id`, show)

  async function readGeneration({ req, res }: RouteContext, slot: Slot): Promise<ImageJob> {
    const body = await readJsonBody(req, res, { slot, bytesMax: options.bodyBytesMax })
    return { kind: 'generation', request: parseImageGeneration(body) }
  }
}

async function readEdit({ req, res }: RouteContext, slot: Slot): Promise<ImageJob> {
  const boundary = boundaryOf(req.headers['content-type'])
  const isPlain = (req.headers['content-encoding'] ?? 'identity').toLowerCase() === 'identity'
  if (boundary === null || !isPlain)
    throw new ApiError(
      'unsupported_media_type',
      'Expected content-type multipart/form-data with a boundary, and no content-encoding',
    )
  const body = await readBody(req, res, { slot, bytesMax: EDIT_BYTES_MAX })
  return { kind: 'edit', request: parseImageEdit(parseMultipart(body, boundary)) }
}

/** As the caller wrote it: what is made of it is shown to nobody else. Anything but a host and a port is none. */
function originOf({ host, protocol }: RouteContext): string {
  return /^[\w.-]{1,253}(:\d{1,5})?$|^\[[0-9a-f:.]{2,45}\](:\d{1,5})?$/i.test(host)
    ? `${protocol}://${host}`
    : ''
}
