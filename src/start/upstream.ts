import { DEMO_EMBEDDING_MODEL } from '../demo/models.ts'
import type { UpstreamServices } from '../routes/upstream.ts'
import { createEmbeddings, type Embeddings } from '../services/embeddings.ts'
import { createTokenCounter } from '../tokens/token-counter.ts'
import { loadCl100k } from '../tokens/vocabulary.ts'
import { createEndpoint, type Endpoint } from '../upstream/endpoint.ts'
import type { EmbeddingsConfig, OpenAiApi, UpstreamConfig } from '../upstream/settings.ts'

/** Bytes of one answer: 2048 embeddings of 3072 numbers, written out, are 140 MB, and base64 a fifth of that. */
export const EMBEDDINGS_ANSWER_BYTES_MAX = 160 * 1024 * 1024

/** Services that the gateway calls, and what it offers of theirs. `stop` ends their calls. */
export type UpstreamPart = { readonly services: UpstreamServices; stop(): Promise<void> }

/** Makes ready what the operator configured; what is not is done by the demo provider, when there is one. */
export function startUpstream(config: UpstreamConfig, demoOrigin: string | null): UpstreamPart {
  const endpoints: Endpoint[] = []
  const open = (api: OpenAiApi, answerBytesMax: number) => {
    const headers: Record<string, string> =
      api.apiKey === null ? {} : { authorization: `Bearer ${api.apiKey}` }
    const endpoint = createEndpoint({ ...api, headers, answerBytesMax })
    endpoints.push(endpoint)
    return endpoint
  }
  return {
    services: { embeddings: openEmbeddings(config.embeddings ?? demoEmbeddings(demoOrigin), open) },
    stop: async () => {
      await Promise.all(endpoints.map((endpoint) => endpoint.close()))
    },
  }
}

type Open = (api: OpenAiApi, answerBytesMax: number) => Endpoint

function openEmbeddings(config: EmbeddingsConfig | null, open: Open): Embeddings {
  const source = config === null ? null : { ...config, endpoint: open(config, EMBEDDINGS_ANSWER_BYTES_MAX) }
  return createEmbeddings({ source, counter: createTokenCounter(loadCl100k) })
}

function demoEmbeddings(origin: string | null): EmbeddingsConfig | null {
  if (origin === null) return null
  const models = [DEMO_EMBEDDING_MODEL]
  return { ...demoApi(origin), models, batchInputsMax: 128 }
}

const DEMO_TIMEOUT_MS = 60_000

function demoApi(origin: string): OpenAiApi {
  return { url: `${origin}/v1`, apiKey: null, timeoutMs: DEMO_TIMEOUT_MS }
}
