import type { RateLimiter } from './accounts/limits/limiter.ts'
import type { Route } from './api/route.ts'
import { openChat } from './chat/open-chat.ts'
import type { GatewayConfig } from './config.ts'
import { openEmbeddings } from './embeddings/embeddings.ts'
import { embeddingRoutes } from './embeddings/routes.ts'
import type { OwnParts } from './gateway.ts'
import { openImages } from './images/images.ts'
import { imageRoutes } from './images/routes.ts'
import { demoEmbeddings, demoImages } from './local/demo-provider.ts'
import type { ServingNodes } from './nodes/hub/open-nodes.ts'
import type { Opening } from './observability/logger.ts'
import type { Settings } from './reload.ts'
import { unixMs } from './runtime/clock.ts'
import { searchRoutes } from './search/routes.ts'
import { openWebSearch } from './search/web-search.ts'

type ChatParts = Parameters<typeof openChat>[0]

type PlainParts = Opening &
  Pick<ChatParts, 'enclaves' | 'providerModels' | 'startedAt' | 'idempotency'> & {
    readonly limiter: RateLimiter
    readonly nodes: ServingNodes
    readonly settings: Settings
    readonly local: { readonly demoOrigin: string } | null
    readonly own: Pick<OwnParts, 'embeddings' | 'images' | 'search'>
  }

/** Opens the services without evidence: chat, images, embeddings and search. */
export function openPlain(
  { upstream, dataFolder, bodyBytesMax }: GatewayConfig,
  { nodes, settings, local, own, log, onStarted, ...parts }: PlainParts,
): {
  readonly chat: readonly Route[]
  readonly models: readonly Route[]
  readonly images: readonly Route[]
  readonly embeddings: readonly Route[]
  readonly search: readonly Route[]
} {
  const base = { log, onStarted }
  const demoOrigin = local?.demoOrigin ?? null
  const bounded = { limiter: parts.limiter, bodyBytesMax, now: unixMs }
  const imaging = { ...base, nodes: nodes.images, dataFolder }
  const imageApi = settings.upstream('images') ?? demoImages(demoOrigin)
  const images = own.images ?? openImages(imageApi, upstream.imageStore, imaging)
  const embeddingApi = settings.upstream('embeddings') ?? demoEmbeddings(demoOrigin)
  const embeddings = own.embeddings ?? openEmbeddings(embeddingApi, base)
  const search = own.search ?? openWebSearch(settings.upstream('search'), base)
  const served = { dispatcher: nodes.dispatcher, upstream: { embeddings, images } }
  const chat = openChat({ ...parts, ...bounded, ...served, log })
  return {
    chat: chat.routes,
    models: chat.modelRoutes,
    images: imageRoutes({ ...bounded, images, publicOrigin: upstream.publicOrigin }),
    embeddings: embeddingRoutes({ ...bounded, embeddings }),
    search: searchRoutes({ ...bounded, search }),
  }
}
