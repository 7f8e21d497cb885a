import type { UpstreamServices } from '../../src/routes/upstream.ts'
import { createEmbeddings } from '../../src/services/embeddings.ts'
import { createImages } from '../../src/services/images.ts'
import { createWebSearch } from '../../src/services/web-search.ts'
import { createTokenCounter } from '../../src/tokens/token-counter.ts'
import { loadCl100k } from '../../src/tokens/vocabulary.ts'

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
