import { isJsonArray, isJsonObject, type Json, memberOf } from '../../attestation/json/value.ts'
import { mediaTypeOf, readImageFacts } from '../images/image-facts.ts'
import { writeForm } from '../upstream/form-body.ts'
import { BackendError } from './backend-error.ts'
import type { ImageRequest } from './image-frames.ts'

/** A request to the backend, in OpenAI's form. */
export type BackendRequest = {
  readonly path: string
  readonly contentType: string
  readonly body: string | Uint8Array
}

/** Gives the request for images: a new one as JSON, a change of one as a form. Throws BackendError. */
export function writeImageCall({
  model,
  prompt,
  image,
  n,
  size,
}: ImageRequest & { readonly model: string }): BackendRequest {
  const fields = { model, prompt, size, response_format: 'b64_json' }
  if (image === null)
    return {
      path: '/v1/images/generations',
      contentType: 'application/json',
      body: JSON.stringify({ ...fields, n }),
    }
  const bytes = Buffer.from(image, 'base64')
  const facts = readImageFacts(bytes)
  if (facts === null) throw new BackendError('expected the image to be PNG, JPEG or WebP', 400)
  const file = { name: 'image', filename: `image.${facts.type}`, mediaType: mediaTypeOf(facts.type), bytes }
  return { path: '/v1/images/edits', ...writeForm({ ...fields, n: String(n) }, file) }
}

/** Gives the images of the backend's answer, base64. Throws BackendError when there are none in it. */
export function readImageAnswer(body: Json | undefined): readonly string[] {
  const data = isJsonObject(body) ? memberOf(body, 'data') : undefined
  if (!isJsonArray(data)) throw new BackendError('the backend sent no list of images')
  return data.map((entry) => {
    const image = isJsonObject(entry) ? memberOf(entry, 'b64_json') : undefined
    if (typeof image !== 'string') throw new BackendError('the backend sent no images in base64')
    return image
  })
}
