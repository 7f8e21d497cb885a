import { recordInference } from '../observability/call-scope.ts'
import { serviceCallErrorOf } from '../upstream/call-error.ts'
import { type Endpoint, type EndpointCall, EndpointError, writeForm } from '../upstream/endpoint.ts'
import { type ImageFacts, mediaTypeOf } from './image-facts.ts'
import {
  decodeImage,
  type ImageCall,
  type ImageJob,
  type ImageSource,
  type MadeImage,
} from './image-source.ts'
import { base64Format, plainBase64 } from './openai-images.ts'

/** Code points. */
const REVISED_PROMPT_LENGTH_MAX = 32_000

/**
 * Images from an API in OpenAI's form. The gateway always asks for base64. With an address, the
 * gateway would have to fetch the image, or send the caller an address that was not checked.
 */
export function createEndpointSource(options: {
  readonly endpoint: Pick<Endpoint, 'ask'>
  readonly models: readonly string[]
}): ImageSource {
  const { endpoint, models } = options
  return {
    models: () => models,
    serves: ({ request }) => models.includes(request.model),
    knows: (model) => models.includes(model),
    async make(call) {
      recordInference(() => ({ provider: 'upstream' }))
      try {
        const { signal, reserve } = call
        const request =
          call.job.kind === 'edit' ? formCall(call.job.request) : jsonCall(call.job.request)
        return readImages(await endpoint.ask({ ...request, signal, reserve }), call)
      } catch (error) {
        throw error instanceof EndpointError ? serviceCallErrorOf(error) : error
      }
    },
  }
}

type Sent = Omit<EndpointCall, 'signal' | 'reserve'>

function jsonCall(request: Extract<ImageJob, { kind: 'generation' }>['request']): Sent {
  const { prompt, n, quality, style } = request
  // Null members are not sent, because some models refuse them, and the API has its own defaults.
  const set = Object.entries({ quality, style }).filter(([, value]) => value !== null)
  return {
    method: 'POST',
    path: '/images/generations',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify({ ...sharedFields(request), ...Object.fromEntries(set), prompt, n }),
  }
}

function formCall(request: Extract<ImageJob, { kind: 'edit' }>['request']): Sent {
  const { prompt, n, image } = request
  const fields = { ...sharedFields(request), prompt, n: String(n) }
  const { contentType, body } = writeForm(fields, {
    name: 'image',
    ...fileOf(image),
    bytes: image.bytes,
  })
  return { method: 'POST', path: '/images/edits', headers: { 'content-type': contentType }, body }
}

/** The caller's file name and media type are not passed on. */
function fileOf({ type }: ImageFacts): { readonly filename: string; readonly mediaType: string } {
  return { filename: `image.${type}`, mediaType: mediaTypeOf(type) }
}

function sharedFields({
  model,
  size,
  user,
}: ImageJob['request']): Readonly<Record<string, string>> {
  return {
    model,
    size,
    ...base64Format(model),
    ...(user === null ? {} : { user }),
  }
}

function readImages(answer: unknown, { job }: ImageCall): readonly MadeImage[] {
  const data = memberOf(answer, 'data')
  if (!Array.isArray(data) || data.length !== job.request.n)
    throw new EndpointError('bad_answer', `expected ${job.request.n} images`)
  return data.map((entry) => {
    const base64 = memberOf(entry, 'b64_json')
    const image = typeof base64 === 'string' ? decodeImage(plainBase64(base64)) : null
    if (image === null)
      throw new EndpointError('bad_answer', 'expected PNG, JPEG or WebP images in base64')
    const revised = memberOf(entry, 'revised_prompt')
    return {
      ...image,
      revisedPrompt:
        typeof revised === 'string'
          ? revised.slice(0, REVISED_PROMPT_LENGTH_MAX).toWellFormed()
          : null,
    }
  })
}

function memberOf(value: unknown, name: string): unknown {
  const hasMember = typeof value === 'object' && value !== null && Object.hasOwn(value, name)
  return hasMember ? Reflect.get(value, name) : undefined
}
