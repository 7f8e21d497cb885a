import { z } from 'zod'
import { MODEL_LENGTH_MAX } from '#enclave/protocol/chat-form.ts'
import type { RequestFault } from '#enclave/protocol/request-faults.ts'
import { ApiError, ValidationError } from '../api/errors.ts'
import type { FormPart } from '../api/form-body.ts'
import { boundedInteger } from '../api/form-schema.ts'
import { described, faultIssue } from '../api/schemas.ts'
import { faultDetails } from '../api/validation.ts'
import { type ImageFacts, readImageFacts } from './image-facts.ts'

/** The interface sets this limit (2.5 and part 8). */
const IMAGES_MAX = 10
const IMAGE_SIZES = ['256x256', '512x512', '1024x1024'] as const

const IMAGES_DEFAULT = 1
const IMAGE_SIZE_DEFAULT = '1024x1024'
const RESPONSE_FORMAT_DEFAULT = 'url'

/**
 * The public API's interface sets no limits here. PROMPT_LENGTH_MAX is OpenAI's limit. Image
 * decoders can decode an image whose edges have IMAGE_EDGE_MAX pixels.
 */
const PROMPT_LENGTH_MAX = 32_000
const IMAGE_EDGE_MAX = 8_192
export const IMAGE_BYTES_MAX = 25 * 1024 * 1024

/** An optional member that the caller left out is null. */
type ImageRequest = {
  readonly prompt: string
  readonly model: string
  readonly n: number
  readonly size: (typeof IMAGE_SIZES)[number]
  /** False if the size is the default. */
  readonly isSizeAsked: boolean
  readonly responseFormat: 'url' | 'b64_json'
  readonly user: string | null
}

export type GenerationRequest = ImageRequest & {
  readonly quality: 'standard' | 'hd' | null
  readonly style: 'vivid' | 'natural' | null
}

export type EditRequest = ImageRequest & {
  readonly image: ImageFacts & { readonly bytes: Uint8Array }
}

/**
 * Throws ValidationError. Throws ApiError `unsupported_request_parameter` for a file that this
 * service would ignore (`mask`). Ignores other unknown fields.
 */
export function parseImageEdit(parts: readonly FormPart[]): EditRequest {
  const faults: RequestFault[] = []
  const fields: Record<string, unknown> = Object.create(null)
  let image: Uint8Array | null = null
  for (const { name: given, filename, bytes } of parts) {
    // OpenAI's clients use this name for every list of images, even if the list has one image.
    const name = given === 'image[]' && filename !== null ? 'image' : given
    if (name !== 'image' && filename !== null) throw unsupportedFile()
    if (name in fields || (name === 'image' && image !== null))
      faults.push(
        name === 'image'
          ? fault(name, 'Only one image can be changed by a request', 'value_error')
          : fault(name, 'The field is given twice', 'value_error'),
      )
    else if (name === 'image') image = bytes
    else
      fields[name] =
        textOf(bytes) ?? faults.push(fault(name, 'Input should be UTF-8', 'string_unicode'))
  }
  const facts = image === null ? null : readImageFacts(image)
  faults.push(...imageFaults(image, facts))
  const { data, error } = editFields.safeParse({ ...fields, n: numberOf(fields.n) })
  if (error) faults.push(...faultDetails('body', fields, error.issues))
  if (faults.length > 0 || data === undefined || image === null || facts === null)
    throw new ValidationError(faults)
  return { ...requestOf(data), image: { ...facts, bytes: image } }
}

const shared = {
  prompt: z.string().min(1).max(PROMPT_LENGTH_MAX),
  model: z.string().min(1).max(MODEL_LENGTH_MAX),
  n: boundedInteger({ min: 1, max: IMAGES_MAX }).nullish().meta({ default: IMAGES_DEFAULT }),
  response_format: z.enum(['url', 'b64_json']).nullish().meta({ default: RESPONSE_FORMAT_DEFAULT }),
  size: z.enum(IMAGE_SIZES).nullish().meta({ default: IMAGE_SIZE_DEFAULT }),
  user: z.string().nullish(),
}

/**
 * Members that change the answer and that this service does not support: those of OpenAI's API, and
 * common ones of other services. Nodes cannot receive them, so the endpoint does not either. A
 * request may contain the listed values, which change nothing. `png`, OpenAI's default format, is
 * not listed, because a source may make JPEG or WebP.
 */
const UNDONE = {
  stream: [false, 'false'],
  partial_images: [0, '0'],
  background: ['auto'],
  output_format: [],
  output_compression: [100, '100'],
  input_fidelity: ['low'],
  moderation: ['auto'],
  mask: [],
  image_url: [],
  negative_prompt: [],
  // In common services, -1 means a random seed.
  seed: [-1, '-1'],
  strength: [],
  steps: [],
  num_inference_steps: [],
  guidance_scale: [],
  cfg_scale: [],
  width: [],
  height: [],
  aspect_ratio: [],
  image_size: [],
}

/** Refuses each member that has another value than the listed ones. */
function refuseUndone(undone: Readonly<Record<string, readonly unknown[]>>) {
  return ({ value, issues }: z.core.ParsePayload<Readonly<Record<string, unknown>>>): void => {
    for (const [name, defaults] of Object.entries(undone)) {
      const given = value[name] ?? ''
      if (given !== '' && !defaults.includes(given))
        issues.push(faultIssue([name], 'unsupported_parameter', `${name} is not supported here`))
    }
  }
}

const editFields = z
  .looseObject(shared)
  .check(refuseUndone({ ...UNDONE, quality: ['standard', 'auto'], style: ['vivid'] }))

const file = described(z.unknown(), () => ({
  type: 'string',
  format: 'binary',
  description: `PNG, JPEG or WebP of at most ${IMAGE_BYTES_MAX} bytes; its part may be named image[] too`,
}))

/** Form of `POST /v1/images/edits`, which parseImageEdit reads. */
export const edit = editFields.safeExtend({ image: file })

/** Body of `POST /v1/images/generations`. Null counts as unset. Ignores other members. */
export const generation = z
  .looseObject({
    ...shared,
    // The image service itself has these defaults, so the gateway does not send them.
    quality: z.enum(['standard', 'hd']).nullish().meta({ default: 'standard' }),
    style: z.enum(['vivid', 'natural']).nullish().meta({ default: 'vivid' }),
  })
  .check(refuseUndone({ ...UNDONE, image: [] }))
  .transform(
    (data): GenerationRequest => ({
      ...requestOf(data),
      quality: data.quality ?? null,
      style: data.style ?? null,
    }),
  )

function requestOf({
  prompt,
  model,
  n,
  size,
  response_format,
  user,
}: z.infer<typeof editFields>): ImageRequest {
  return {
    prompt,
    model,
    n: typeof n === 'number' ? n : IMAGES_DEFAULT,
    size: size ?? IMAGE_SIZE_DEFAULT,
    isSizeAsked: typeof size === 'string',
    responseFormat: response_format ?? RESPONSE_FORMAT_DEFAULT,
    user: user ?? null,
  }
}

function imageFaults(image: Uint8Array | null, facts: ImageFacts | null): readonly RequestFault[] {
  if (image === null) return [fault('image', 'Field required', 'missing')]
  if (image.length > IMAGE_BYTES_MAX)
    return [fault('image', `Image should have at most ${IMAGE_BYTES_MAX} bytes`, 'too_long')]
  if (facts === null)
    return [fault('image', 'Input should be a PNG, JPEG or WebP image', 'image_type')]
  return Math.max(facts.width, facts.height) > IMAGE_EDGE_MAX
    ? [
        fault(
          'image',
          `Image should be at most ${IMAGE_EDGE_MAX} pixels wide and high`,
          'image_size',
        ),
      ]
    : []
}

function fault(field: string, msg: string, type: string): RequestFault {
  return { loc: ['body', field.slice(0, FIELD_LENGTH_MAX)], msg, type }
}

const FIELD_LENGTH_MAX = 128

/** Converts a whole number. Returns other text unchanged, which the schema then refuses. */
function numberOf(text: unknown): unknown {
  return typeof text === 'string' && /^-?\d{1,15}$/.test(text) ? Number(text) : text
}

function textOf(bytes: Uint8Array): string | null {
  try {
    return new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(bytes)
  } catch {
    return null
  }
}

function unsupportedFile(): ApiError {
  return new ApiError('unsupported_request_parameter', 'An edit takes one file, image')
}
