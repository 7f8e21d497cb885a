import { ApiError } from '../errors.ts'
import type { ImageCall, ImageSource, MadeImage } from '../images/image-source.ts'
import { type ImageStore, type KeptImage, StoreFullError } from '../images/image-store.ts'

/** Images that are made on request. */
export type Images = {
  /** Models that can be asked for now. */
  models(): readonly string[]
  /**
   * Makes images and gives the response's JSON text (interface 2.5); `addressOf` gives the address of a kept one by its id. Throws ApiError and
   * the signal's reason.
   */
  make(call: ImageCall, addressOf: (id: string) => string): Promise<string>
  /** The image behind an address that was given out, or null. */
  find(id: string): Promise<KeptImage | null>
}

/** Service of images, over whatever makes them: the first source that has a model serves it. */
export function createImages(options: {
  readonly sources: readonly ImageSource[]
  readonly store: ImageStore
  /** Unix milliseconds. */
  readonly now: () => number
}): Images {
  const { sources, store, now } = options
  return {
    models: () => [...new Set(sources.flatMap((source) => source.models()))],
    async make(call, addressOf) {
      const { model, responseFormat } = call.job.request
      const source = sources.find((candidate) => candidate.models().includes(model))
      if (source === undefined)
        throw new ApiError('unsupported_model', 'Nothing here makes images with this model')
      const made = await source.make(call)
      const data = await Promise.all(
        made.map(async (image) => ({
          b64_json: responseFormat === 'b64_json' ? Buffer.from(image.bytes).toString('base64') : null,
          revised_prompt: image.revisedPrompt,
          url: responseFormat === 'url' ? addressOf(await keep(store, image)) : null,
        })),
      )
      return JSON.stringify({ created: Math.floor(now() / 1000), data })
    },
    find: (id) => store.find(id),
  }
}

async function keep(store: ImageStore, image: MadeImage): Promise<string> {
  try {
    return await store.put(image)
  } catch (cause) {
    if (!(cause instanceof StoreFullError)) throw cause
    throw new ApiError('image_store_full', 'No more images can be kept now: ask for b64_json, or later', {
      cause,
    })
  }
}
