import { mostServed } from '../chat/models.ts'
import type { ImageDispatcher } from '../nodes/runs/dispatch.ts'
import { DispatchError, nodeCallErrorOf } from '../nodes/runs/dispatch-error.ts'
import { recordInference } from '../observability/call-scope.ts'
import { checkImages } from './checked-images.ts'
import type { ImageJob, ImageSource } from './image-source.ts'

/**
 * Images from contributed DIFFUSION nodes. A node must send the requested number of images. Any
 * other answer counts as a failure of the node. Images are scaled if the caller named a size
 * (`checked-images.ts`). Quality, style and user are not sent, because a node's frame has no such
 * members.
 */
export function createNodeImages(dispatcher: ImageDispatcher): ImageSource {
  return {
    models: () => mostServed(dispatcher.models()).map(({ model }) => model),
    serves: (job) => dispatcher.serves(job.request.model) && dispatcher.fits(sizesOf(job)),
    knows: dispatcher.isKnown,
    async make({ job, accountId, signal, reserve }) {
      recordInference(() => ({ provider: 'nodes' }))
      const { model, prompt, n, size, isSizeAsked } = job.request
      const image =
        job.kind === 'edit' ? Buffer.from(job.request.image.bytes).toString('base64') : null
      try {
        return await dispatcher.dispatch({
          model,
          accountId,
          signal,
          request: { prompt, image, n, size },
          async read(images) {
            reserve(images.reduce((sum, { length }) => sum + length, 0))
            const made = await checkImages(images, { n, size: isSizeAsked ? size : null })
            reserve(made.reduce((sum, { bytes }) => sum + bytes.length, 0))
            return made
          },
        })
      } catch (error) {
        throw error instanceof DispatchError ? nodeCallErrorOf(error) : error
      }
    },
  }
}

function sizesOf(job: ImageJob): { readonly prompt: string; readonly imageBytes: number } {
  const imageBytes = job.kind === 'edit' ? job.request.image.bytes.length : 0
  return { prompt: job.request.prompt, imageBytes }
}
