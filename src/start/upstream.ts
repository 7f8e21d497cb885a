import { randomBytes } from 'node:crypto'
import { join } from 'node:path'
import type { GatewayConfig } from '../config.ts'
import { loadCl100k } from '../embeddings/byte-pairs.ts'
import { createEmbeddings, type Embeddings } from '../embeddings/embeddings.ts'
import { createTokenCounter } from '../embeddings/token-counter.ts'
import { createEndpointSource } from '../images/endpoint-source.ts'
import { createFileStore, SWEEP_INTERVAL_MS } from '../images/file-store.ts'
import type { ImageSource } from '../images/image-source.ts'
import { createImages } from '../images/images.ts'
import { createNodeImages } from '../images/node-images.ts'
import { DEMO_EMBEDDING_MODEL, DEMO_IMAGE_MODEL } from '../local/demo/models.ts'
import type { ImageDispatcher } from '../nodes/dispatch.ts'
import type { Logger } from '../observability/logger.ts'
import { SEARCH_ADAPTERS } from '../search/providers.ts'
import { createWebSearch, type WebSearch } from '../search/web-search.ts'
import { createEndpoint, type Endpoint, type EndpointOptions } from '../upstream/endpoint.ts'
import type { EmbeddingsConfig, ImagesConfig, OpenAiApi, SearchConfig } from '../upstream/settings.ts'
import type { UpstreamServices } from './app-routes.ts'

/** Bytes of one answer: 2048 embeddings of 3072 numbers, written out, are 140 MB, and base64 a fifth of that. */
export const EMBEDDINGS_ANSWER_BYTES_MAX = 160 * 1024 * 1024

/** Bytes of one answer of a search provider: usual ones have 100 KB. */
export const SEARCH_ANSWER_BYTES_MAX = 8 * 1024 * 1024

/** Bytes of one answer: ten images of 1024 pixels, uncompressed and in base64, are 42 MB. */
export const IMAGES_ANSWER_BYTES_MAX = 64 * 1024 * 1024

/** Services that the gateway calls, and what it offers of theirs. `stop` ends their calls. */
export type UpstreamPart = { readonly services: UpstreamServices; stop(): Promise<void> }

/** Makes ready what the operator configured; what is not is done by the demo provider, when there is one. */
export function startUpstream(
  { upstream: config, dataFolder }: Pick<GatewayConfig, 'upstream' | 'dataFolder'>,
  {
    demoOrigin,
    nodeImages,
    log,
  }: {
    readonly demoOrigin: string | null
    readonly nodeImages: ImageDispatcher
    readonly log: Logger
  },
): UpstreamPart {
  const endpoints: Endpoint[] = []
  const open: Open = (options) => {
    const endpoint = createEndpoint(options)
    endpoints.push(endpoint)
    return endpoint
  }
  const folder = join(dataFolder, 'images')
  const store = createFileStore({ folder, ...config.imageStore, now: Date.now, random: randomBytes })
  const sweep = () => store.sweep().catch((error: unknown) => log.error({ err: error }, 'images not swept'))
  const sweeper = setInterval(sweep, SWEEP_INTERVAL_MS)
  const images = config.images ?? demoImages(demoOrigin)
  const sources = [createNodeImages(nodeImages), ...openImages(images, open)]
  return {
    services: {
      embeddings: openEmbeddings(config.embeddings ?? demoEmbeddings(demoOrigin), open),
      search: openSearch(config.search, open),
      images: createImages({ sources, store, now: Date.now }),
      publicOrigin: config.publicOrigin,
    },
    stop: async () => {
      clearInterval(sweeper)
      await Promise.all(endpoints.map((endpoint) => endpoint.close()))
    },
  }
}

type Open = (options: EndpointOptions) => Endpoint

function openEmbeddings(config: EmbeddingsConfig | null, open: Open): Embeddings {
  const counter = createTokenCounter(loadCl100k)
  if (config === null) return createEmbeddings({ source: null, counter })
  const endpoint = open(openAiOptions(config, EMBEDDINGS_ANSWER_BYTES_MAX))
  return createEmbeddings({ source: { ...config, endpoint }, counter })
}

function openSearch(config: SearchConfig | null, open: Open): WebSearch {
  if (config === null) return createWebSearch(null)
  const { provider, url, apiKey, timeoutMs } = config
  const endpoint = open({ url, headers: {}, timeoutMs, answerBytesMax: SEARCH_ANSWER_BYTES_MAX })
  return createWebSearch({ adapter: SEARCH_ADAPTERS[provider], endpoint, apiKey: apiKey ?? '' })
}

function openImages(config: ImagesConfig | null, open: Open): readonly ImageSource[] {
  if (config === null) return []
  const endpoint = open(openAiOptions(config, IMAGES_ANSWER_BYTES_MAX))
  return [createEndpointSource({ endpoint, models: config.models })]
}

function openAiOptions({ url, apiKey, timeoutMs }: OpenAiApi, answerBytesMax: number): EndpointOptions {
  const headers: Record<string, string> = apiKey === null ? {} : { authorization: `Bearer ${apiKey}` }
  return { url, headers, timeoutMs, answerBytesMax }
}

const DEMO_TIMEOUT_MS = 60_000
const DEMO_BATCH_INPUTS_MAX = 128

function demoEmbeddings(origin: string | null): EmbeddingsConfig | null {
  if (origin === null) return null
  return { ...demoApi(origin), models: [DEMO_EMBEDDING_MODEL], batchInputsMax: DEMO_BATCH_INPUTS_MAX }
}

function demoImages(origin: string | null): ImagesConfig | null {
  return origin === null ? null : { ...demoApi(origin), models: [DEMO_IMAGE_MODEL] }
}

function demoApi(origin: string): OpenAiApi {
  return { url: `${origin}/v1`, apiKey: null, timeoutMs: DEMO_TIMEOUT_MS }
}
