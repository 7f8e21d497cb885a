import { createEmbeddings } from '../../src/embeddings/embeddings.ts'
import { createTokenCounter } from '../../src/embeddings/token-counter.ts'
import { loadCl100k } from '../../src/embeddings/byte-pairs.ts'
import { createImages } from '../../src/images/images.ts'
import { createWebSearch } from '../../src/search/web-search.ts'
import type { UpstreamServices } from '../../src/start/app-routes.ts'

/** What a gateway has whose operator configured no service. */
export const NO_UPSTREAM: UpstreamServices = {
  embeddings: createEmbeddings({ source: null, counter: createTokenCounter(loadCl100k) }),
  search: createWebSearch(null),
  images: createImages({
    sources: [],
    store: { put: () => Promise.reject(new TypeError('expected no image')), find: async () => null },
    now: Date.now,
  }),
  publicOrigin: null,
}
