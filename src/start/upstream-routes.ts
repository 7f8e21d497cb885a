import type { Router } from '@koa/router'
import { createAdmission } from '../api/admission.ts'
import type { RequestState } from '../api/context.ts'
import type { UpstreamModel } from '../chat/models.ts'
import type { Embeddings } from '../embeddings/embeddings.ts'
import { addEmbeddingRoutes, type EmbeddingRouteOptions } from '../embeddings/routes.ts'
import type { Images } from '../images/images.ts'
import { addImageRoutes, type ImageRouteOptions } from '../images/routes.ts'
import { addSearchRoutes } from '../search/routes.ts'
import type { WebSearch } from '../search/web-search.ts'

/** Embedding calls at once, and the bytes of their bodies and answers together. */
export const EMBEDDING_CALLS_MAX = 256
export const EMBEDDING_BYTES_MAX = 512 * 1024 * 1024

/** The same for searches: their answers are short. */
export const SEARCH_CALLS_MAX = 256
export const SEARCH_BYTES_MAX = 64 * 1024 * 1024

/** The same for images: each call may hold an upload of 26 MiB and ten images. */
export const IMAGE_CALLS_MAX = 64
export const IMAGE_CALLS_BYTES_MAX = 512 * 1024 * 1024

/** What is served by services that the operator configured, rather than by nodes or through the enclave. */
export type UpstreamServices = {
  readonly embeddings: Embeddings
  readonly search: WebSearch
  readonly images: Images
  /** Origin under which callers reach this service; null: the one that each called. */
  readonly publicOrigin: string | null
}

/** Adds the routes of these services, each with an admission of its own: a flood of one leaves room for the others. */
export function addUpstreamRoutes(
  router: Router<RequestState>,
  { embeddings, search, images, publicOrigin }: UpstreamServices,
  calls: Omit<
    EmbeddingRouteOptions & ImageRouteOptions,
    'embeddings' | 'images' | 'publicOrigin' | 'admission'
  >,
): void {
  addEmbeddingRoutes(router, {
    ...calls,
    embeddings,
    admission: createAdmission({ callsMax: EMBEDDING_CALLS_MAX, bytesMax: EMBEDDING_BYTES_MAX }),
  })
  addSearchRoutes(router, {
    ...calls,
    search,
    admission: createAdmission({ callsMax: SEARCH_CALLS_MAX, bytesMax: SEARCH_BYTES_MAX }),
  })
  addImageRoutes(router, {
    ...calls,
    images,
    publicOrigin,
    admission: createAdmission({ callsMax: IMAGE_CALLS_MAX, bytesMax: IMAGE_CALLS_BYTES_MAX }),
  })
}

/** The models of these services, as `GET /v1/models` lists them. Nodes' come and go, so that it is asked each time. */
export function listUpstreamModels({ embeddings, images }: UpstreamServices): readonly UpstreamModel[] {
  return [
    ...embeddings.models.map(({ id, inputTokensMax }) => ({
      id,
      owner: 'embeddings' as const,
      contextLength: inputTokensMax,
    })),
    ...images.models().map((id) => ({ id, owner: 'images' as const, contextLength: null })),
  ]
}
