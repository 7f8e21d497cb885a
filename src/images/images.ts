import { join } from 'node:path'
import { ApiError } from '../api/errors.ts'
import type { ImageDispatcher } from '../nodes/runs/dispatch.ts'
import type { Opening } from '../observability/logger.ts'
import { singleFlight } from '../runtime/single-flight.ts'
import { openAiOptions, openEndpoint } from '../upstream/endpoint.ts'
import type { ImageStoreConfig, ImagesConfig } from '../upstream/settings.ts'
import { openBucket } from './bucket.ts'
import { createEndpointSource } from './endpoint-source.ts'
import { openImageFolder } from './image-folder.ts'
import type { ImageCall, ImageSource, MadeImage } from './image-source.ts'
import {
  createImageStore,
  type ImageStore,
  ImageStoreError,
  type KeptImage,
  StoreFullError,
  SWEEP_INTERVAL_MS,
} from './image-store.ts'
import { createNodeImages } from './node-images.ts'

export type Images = {
  /** Models that can be used now. */
  models(): readonly string[]
  /**
   * Returns the response's JSON text (interface 2.5). `addressOf` returns the address of a stored
   * image. Throws ApiError, or the signal's reason.
   */
  make(call: ImageCall, addressOf: (id: string) => string): Promise<string>
  /** Null when the image does not exist. */
  find(id: string): Promise<KeptImage | null>
}

/** Ten images of 1024 pixels, uncompressed and in base64, have 42 MB. */
const ANSWER_BYTES_MAX = 64 * 1024 * 1024

/**
 * Tries nodes first, then the source that the operator configured (`config` null: no source).
 * Stores new images in a bucket, or in the data folder.
 */
export function openImages(
  config: ImagesConfig | null,
  keeping: ImageStoreConfig,
  {
    nodes,
    dataFolder,
    log,
    onStarted,
  }: Opening & {
    /** Absent: no nodes make images. */
    readonly nodes: ImageDispatcher | undefined
    readonly dataFolder: string
  },
): Images {
  const now = Date.now
  const { bucket, ttlMs, bytesMax } = keeping
  const objects = bucket === null ? openImageFolder(join(dataFolder, 'images')) : openBucket(bucket)
  const store = createImageStore({ objects, ttlMs, bytesMax, now })
  const sweep = singleFlight(() =>
    store.sweep().catch((error: unknown) => log.error({ err: error }, 'images not swept')),
  )
  const sweeper = setInterval(sweep, SWEEP_INTERVAL_MS)
  onStarted(async () => {
    clearInterval(sweeper)
    await objects.close()
  })
  // This first sweep reports an unusable store. The gateway still starts.
  void sweep()
  const sources: ImageSource[] = nodes === undefined ? [] : [createNodeImages(nodes)]
  if (config !== null) {
    const endpoint = openEndpoint(openAiOptions(config, ANSWER_BYTES_MAX), onStarted)
    sources.push(createEndpointSource({ endpoint, models: config.models }))
  }
  return createImages({ sources, store, now })
}

/**
 * The first source that can serve a call gets the call. If nodes are the first source and no node
 * answers, the next source gets the call. If no source can serve the call now, a source that has
 * the model refuses the call.
 */
export function createImages(options: {
  readonly sources: readonly ImageSource[]
  readonly store: Omit<ImageStore, 'sweep'>
  /** Unix milliseconds. */
  readonly now: () => number
}): Images {
  const { sources, store, now } = options
  return {
    models: () => [...new Set(sources.flatMap((source) => source.models()))],
    async make(call, addressOf) {
      const { responseFormat } = call.job.request
      const made = await makeAtOneOf(chooseSources(sources, call), call)
      const data = await Promise.all(
        made.map(async (image) => ({
          b64_json:
            responseFormat === 'b64_json' ? Buffer.from(image.bytes).toString('base64') : null,
          revised_prompt: image.revisedPrompt,
          url: responseFormat === 'url' ? addressOf(await keep(store, image)) : null,
        })),
      )
      return JSON.stringify({ created: Math.floor(now() / 1000), data })
    },
    async find(id) {
      const image = await store.find(id).catch(throwAway)
      return image && { ...image, open: () => image.open().catch(throwAway) }
    },
  }
}

function chooseSources(
  sources: readonly ImageSource[],
  { job }: ImageCall,
): readonly ImageSource[] {
  const serving = sources.filter((source) => source.serves(job))
  return serving.length > 0 ? serving : sources.filter((source) => source.knows(job.request.model))
}

/** These codes mean that no node answered. The request itself has no fault. */
const NODES_FAILED: ReadonlySet<string> = new Set([
  'no_available_inference_nodes',
  'node_error',
  'node_timeout',
  // Only nodes cause this code: a configured source reports its own limit as provider_refused.
  'rate_limit_exceeded',
])

async function makeAtOneOf(
  sources: readonly ImageSource[],
  call: ImageCall,
): Promise<readonly MadeImage[]> {
  const [source, ...others] = sources
  if (source === undefined)
    throw new ApiError('unsupported_model', 'This service makes no images with this model')
  try {
    return await source.make(call)
  } catch (error) {
    const isNodesFault = error instanceof ApiError && NODES_FAILED.has(error.code)
    if (others.length === 0 || !isNodesFault) throw error
    return makeAtOneOf(others, call)
  }
}

async function keep(store: Pick<ImageStore, 'put'>, image: MadeImage): Promise<string> {
  try {
    return await store.put(image)
  } catch (cause) {
    if (!(cause instanceof StoreFullError)) return throwAway(cause)
    throw new ApiError(
      'image_store_full',
      'The service cannot store more images now: ask for b64_json, or try again later',
      { cause },
    )
  }
}

/** Throws the error that a caller gets when the store cannot be used. The log states the reason. */
function throwAway(cause: unknown): never {
  if (!(cause instanceof ImageStoreError)) throw cause
  throw new ApiError('not_ready', 'Images cannot be stored or fetched at the moment, try again', {
    cause,
  })
}
