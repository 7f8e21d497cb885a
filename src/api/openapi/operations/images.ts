import { z } from 'zod'
import { edit, generation, IMAGE_BYTES_MAX } from '../../../images/image-request.ts'
import { imageFile, imageList } from '../../../images/replies.ts'
import { described } from '../../described.ts'
import type { Operation } from '../operation.ts'
import { upstreamErrors } from './upstream-errors.ts'

const file = described(z.unknown(), () => ({
  type: 'string',
  format: 'binary',
  description: `PNG, JPEG or WebP of at most ${IMAGE_BYTES_MAX} bytes; its part may be named image[] too`,
}))

const image = {
  method: 'POST',
  tag: 'Images',
  isKeyed: true,
  scope: 'inference',
  reply: { name: 'ImageList', schema: imageList },
  errors: ['rate_limit_exceeded', 'unsupported_model', 'image_store_full', ...upstreamErrors],
} satisfies Partial<Operation>

/** Images, and where they are. */
export const imageOperations: readonly Operation[] = [
  {
    ...image,
    path: '/v1/images/generations',
    summary: 'Make images of a prompt',
    body: { name: 'ImageGenerationRequest', schema: generation },
  },
  {
    ...image,
    path: '/v1/images/edits',
    summary: 'Change an image by a prompt',
    body: { name: 'ImageEditRequest', schema: edit.extend({ image: file }), type: 'multipart/form-data' },
    errors: [...image.errors, 'unsupported_request_parameter'],
  },
  {
    method: 'GET',
    path: '/v1/images/files/:id',
    tag: 'Images',
    summary: 'An image that was made, until it expires; whoever has its address needs no key',
    isKeyed: false,
    pathParameters: z.object({ id: z.string() }),
    reply: { name: 'ImageFile', schema: imageFile, types: ['image/png', 'image/jpeg', 'image/webp'] },
    errors: ['not_found'],
  },
]
