import { z } from 'zod'
import { admitCall, type RateLimiter } from '../accounts/limits/limiter.ts'
import { createAdmission } from '../api/admission.ts'
import type { RouteContext } from '../api/context.ts'
import { ApiError, NODE_ERRORS, UPSTREAM_ERRORS } from '../api/errors.ts'
import { defineRoute, type Route, type RouteCall } from '../api/route.ts'
import { described } from '../api/schemas.ts'
import { mediaTypeOf } from './image-facts.ts'
import { edit, generation, IMAGE_BYTES_MAX, parseImageEdit } from './image-request.ts'
import type { ImageJob } from './image-source.ts'
import type { Images } from './images.ts'

/** Each call may hold an upload of 26 MiB and ten images. */
const IMAGE_CALLS_MAX = 64
const IMAGE_CALLS_BYTES_MAX = 512 * 1024 * 1024

/**
 * Images that are sent at once. Each holds a connection to the store, or a file descriptor, until
 * its reader has it.
 */
export const IMAGE_READS_MAX = 192

/** 1 MiB for the other parts of the form. */
export const EDIT_BYTES_MAX = IMAGE_BYTES_MAX + 1024 * 1024

const IMAGE_FILES_PATH = '/v1/images/files'

/** Images response (interface, 2.5). */
const imageList = z.strictObject({
  created: z.int().min(0),
  data: z.array(
    z.strictObject({
      url: z.string().nullish(),
      b64_json: z.base64().nullish(),
      revised_prompt: z.string().nullish(),
    }),
  ),
})

/** A configured service or a contributed node makes the images. */
const MAKING_ERRORS = [
  'rate_limit_exceeded',
  'insufficient_quota',
  'unsupported_model',
  'image_store_full',
  ...UPSTREAM_ERRORS,
  ...NODE_ERRORS,
] as const

const imageFile = described(z.unknown(), () => ({ type: 'string', format: 'binary' }))

/**
 * `POST /v1/images/generations` and `/v1/images/edits` (interface, 2.5), and the images that they
 * make.
 */
export function imageRoutes({
  images,
  publicOrigin,
  limiter,
  bodyBytesMax,
  now,
}: {
  readonly images: Images
  /** Origin of the image addresses. Null: the origin that the caller used. */
  readonly publicOrigin: string | null
  readonly limiter: Pick<RateLimiter, 'admit'>
  readonly bodyBytesMax: number
  /** Unix milliseconds. */
  readonly now: () => number
}): readonly Route[] {
  const made = {
    method: 'POST',
    tag: 'Images',
    scope: 'inference',
    reply: { name: 'ImageList', schema: imageList },
    admission: createAdmission({ callsMax: IMAGE_CALLS_MAX, bytesMax: IMAGE_CALLS_BYTES_MAX }),
    isAbortable: true,
  } as const

  async function make({ context, caller, abort, slot }: RouteCall, job: ImageJob): Promise<string> {
    const { model, n } = job.request
    const limited = { kind: 'images', model, estimate: 0, images: n } as const
    const permit = await admitCall(context, limiter, limited)
    const call = { job, accountId: caller().accountId, signal: abort.signal, reserve: slot.reserve }
    const origin = publicOrigin ?? originOf(context)
    let made = 0
    try {
      const answer = await images.make(call, (id) => `${origin}${IMAGE_FILES_PATH}/${id}`)
      made = n
      return answer
    } finally {
      permit.settle(0, undefined, 0, made)
    }
  }

  return [
    defineRoute({
      ...made,
      path: '/v1/images/generations',
      summary: 'Make images from a prompt',
      body: {
        name: 'ImageGenerationRequest',
        schema: generation,
        bytesMax: bodyBytesMax,
        example: { model: 'demo/image', prompt: 'A lighthouse at dusk', size: '512x512' },
      },
      errors: MAKING_ERRORS,
      handler: (call) => make(call, { kind: 'generation', request: call.body }),
    }),
    defineRoute({
      ...made,
      path: '/v1/images/edits',
      summary: 'Change an image by a prompt',
      form: {
        name: 'ImageEditRequest',
        schema: edit,
        bytesMax: EDIT_BYTES_MAX,
        example: { model: 'demo/image', prompt: 'The same by night' },
        parse: parseImageEdit,
      },
      errors: [...MAKING_ERRORS, 'unsupported_request_parameter'],
      handler: (call) => make(call, { kind: 'edit', request: call.body }),
    }),
    defineRoute({
      method: 'GET',
      path: `${IMAGE_FILES_PATH}/:id`,
      tag: 'Images',
      summary: 'A generated image, until it expires; its address works without a key',
      // The id is secret: only the caller who asked for the image gets it.
      scope: 'public',
      params: z.object({ id: z.string() }),
      reply: {
        name: 'ImageFile',
        schema: imageFile,
        types: ['image/png', 'image/jpeg', 'image/webp'],
      },
      errors: ['not_found', 'not_ready', 'overloaded'],
      admission: createAdmission({ callsMax: IMAGE_READS_MAX, bytesMax: 0 }),
      async handler({ context, params }) {
        const image = await images.find(params.id)
        const isRead = context.method === 'GET'
        const content = isRead ? ((await image?.open()) ?? null) : null
        if (image === null || (isRead && content === null))
          throw new ApiError('not_found', 'There is no such image, or it has expired')
        const leftSeconds = Math.max(0, Math.floor((image.expiresAtMs - now()) / 1000))
        context.status = 200
        context.set('content-type', mediaTypeOf(image.type))
        context.set('cache-control', `private, max-age=${leftSeconds}, immutable`)
        if (content !== null) context.body = content
        context.set('content-length', String(image.length))
        return undefined
      },
    }),
  ]
}

/**
 * Returns the origin of the caller's request. The caller's host is used unchanged, because only
 * this caller sees the result. Empty if `host` is not a host with an optional port.
 */
function originOf({ host, protocol }: RouteContext): string {
  return /^[\w.-]{1,253}(:\d{1,5})?$|^\[[0-9a-f:.]{2,45}\](:\d{1,5})?$/i.test(host)
    ? `${protocol}://${host}`
    : ''
}
