import { type Backend, createBackend } from './backend.ts'
import type { BackendConfig } from './config.ts'
import { AgentFailure } from './registration.ts'

/**
 * Returns the configured backend, even if it is down. Otherwise searches this machine. Rejects with
 * AgentFailure if no backend is found. `name` is for people to read.
 */
export async function openBackend({
  url,
  apiKey,
  silenceMs,
}: BackendConfig): Promise<{ readonly backend: Backend; readonly name: string }> {
  if (url !== null) return { backend: createBackend({ url, apiKey, silenceMs }), name: url }
  const found = await findBackend({ apiKey, silenceMs })
  if (found !== null)
    return { backend: found.backend, name: `${found.kind.name} at ${found.backend.url}` }
  const tried = BACKEND_KINDS.map(({ name, port }) => `${name} (${port})`).join(', ')
  throw new AgentFailure(
    `no inference server was found on this machine; tried ${tried}. Name one with BACKEND_URL or --backend`,
  )
}

type BackendKind = {
  readonly name: string
  readonly port: number
  readonly healthPath: string
  /** True if this path answers 503 while the server loads a model. */
  readonly reportsLoading?: boolean
}

/** In search order. Ports and paths are the defaults in each server's documentation. */
const BACKEND_KINDS: readonly BackendKind[] = [
  { name: 'vLLM', port: 8000, healthPath: '/health' },
  { name: 'SGLang', port: 30_000, healthPath: '/health' },
  { name: 'llama.cpp', port: 8080, healthPath: '/health', reportsLoading: true },
  { name: 'Ollama', port: 11_434, healthPath: '/' },
  { name: 'LM Studio', port: 1234, healthPath: '/v1/models' },
]

type FoundBackend = {
  readonly kind: BackendKind
  readonly backend: Backend
  /** Empty while the server loads its model. */
  readonly models: readonly string[]
}

/**
 * Searches this machine, on the usual port of each kind. Returns the first server that is up and
 * lists models, and otherwise the first that loads its model. The caller must close the backend.
 */
export async function findBackend(options: {
  readonly apiKey: string | null
  readonly silenceMs?: number | undefined
  readonly kinds?: readonly BackendKind[]
}): Promise<FoundBackend | null> {
  const tries = (options.kinds ?? BACKEND_KINDS).map((kind) => tryBackend(kind, options))
  const found = (await Promise.all(tries)).filter((candidate) => candidate !== null)
  const chosen = found.find(({ models }) => models.length > 0) ?? found[0] ?? null
  const others = found.filter((candidate) => candidate !== chosen)
  await Promise.all(others.map(({ backend }) => backend.close()))
  return chosen
}

async function tryBackend(
  kind: BackendKind,
  { apiKey, silenceMs }: Parameters<typeof findBackend>[0],
): Promise<FoundBackend | null> {
  const backend = createBackend({ url: `http://127.0.0.1:${kind.port}`, apiKey, silenceMs })
  const health = await backend.health(kind.healthPath)
  const models = health === 'up' ? await backend.listModels().catch(() => []) : []
  const isLoading = health === 'loading' && kind.reportsLoading === true
  if (models.length > 0 || isLoading) return { kind, backend, models }
  await backend.close()
  return null
}
