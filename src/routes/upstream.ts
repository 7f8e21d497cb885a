import type { Router } from '@koa/router'
import { createAdmission } from '../http/admission.ts'
import type { RequestState } from '../http/context.ts'
import type { Embeddings } from '../services/embeddings.ts'
import type { UpstreamModel } from '../services/models.ts'
import { addEmbeddingRoutes, type EmbeddingRouteOptions } from './embeddings.ts'

/** Embedding calls at once, and the bytes of their bodies and answers together. */
export const EMBEDDING_CALLS_MAX = 256
export const EMBEDDING_BYTES_MAX = 512 * 1024 * 1024

/** What is served by services that the operator configured, rather than by nodes or through the enclave. */
export type UpstreamServices = { readonly embeddings: Embeddings }

/** Adds the routes of these services, each with an admission of its own: a flood of one leaves room for the others. */
export function addUpstreamRoutes(
  router: Router<RequestState>,
  { embeddings }: UpstreamServices,
  calls: Omit<EmbeddingRouteOptions, 'embeddings' | 'admission'>,
): void {
  addEmbeddingRoutes(router, {
    ...calls,
    embeddings,
    admission: createAdmission({ callsMax: EMBEDDING_CALLS_MAX, bytesMax: EMBEDDING_BYTES_MAX }),
  })
}

/** The models of these services, as `GET /v1/models` lists them. */
export function listUpstreamModels({ embeddings }: UpstreamServices): readonly UpstreamModel[] {
  return embeddings.models.map(({ id, inputTokensMax }) => ({
    id,
    owner: 'embeddings',
    contextLength: inputTokensMax,
  }))
}
