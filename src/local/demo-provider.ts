import { join } from 'node:path'
import type { Logger } from '../observability/logger.ts'
import type { EmbeddingsConfig, ImagesConfig, OpenAiApi } from '../upstream/settings.ts'
import type { DemoReady } from './demo/config.ts'
import { DEMO_EMBEDDING_MODEL, DEMO_IMAGE_MODEL, TEE_PROVIDER } from './demo/models.ts'
import { readReady, type SupervisedProcess, superviseProcess } from './supervised-process.ts'

const MAIN = join(import.meta.dirname, './demo/main.ts')
const START_TIMEOUT_MS = 60_000
const STOP_TIMEOUT_MS = 2_000

/**
 * A restarted provider keeps its address, because the enclaves' table of providers cannot change.
 * Rejects with StartFailure.
 */
export function startDemoProvider(
  variables: Readonly<Record<string, string>>,
  log: Logger,
): Promise<SupervisedProcess<DemoReady>> {
  return superviseProcess(
    {
      name: 'demo provider',
      file: MAIN,
      environmentOf: (last) => ({
        ...variables,
        ...(last === null ? {} : { DEMO_PORT: new URL(last.origin).port }),
        ...(last?.attested ? { DEMO_TEE_PORT: new URL(last.attested.origin).port } : {}),
      }),
      parseReady: readReady<DemoReady>,
      startTimeoutMs: START_TIMEOUT_MS,
      stopTimeoutMs: STOP_TIMEOUT_MS,
    },
    log,
  )
}

/**
 * Adds a credential for the simulated TEE, which accepts any text. Without a credential, a gateway
 * makes no call over TLS.
 */
export function withDemoCredential(
  credentials: () => ReadonlyMap<string, string>,
): () => ReadonlyMap<string, string> {
  return () => new Map([[TEE_PROVIDER, 'demonstration'], ...credentials()])
}

/** Null when no demo provider runs. */
export function demoEmbeddings(origin: string | null): EmbeddingsConfig | null {
  if (origin === null) return null
  return {
    ...demoApi(origin),
    models: [DEMO_EMBEDDING_MODEL],
    batchInputsMax: 128,
  }
}

/** Null when no demo provider runs. */
export function demoImages(origin: string | null): ImagesConfig | null {
  return origin === null ? null : { ...demoApi(origin), models: [DEMO_IMAGE_MODEL] }
}

function demoApi(origin: string): OpenAiApi {
  return { url: `${origin}/v1`, apiKey: null, timeoutMs: 60_000 }
}
