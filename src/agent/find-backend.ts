import { type Backend, createBackend } from './backend.ts'
import type { BackendConfig } from './config.ts'
import { AgentFailure } from './registration.ts'

/**
 * Gives the backend of a configuration: the one it names, whether or not it is up, or the one that
 * is found on this machine. Rejects with AgentFailure when none is found. `name` says which backend
 * it is, for people to read.
 */
export async function openBackend({
  url,
  apiKey,
}: BackendConfig): Promise<{ readonly backend: Backend; readonly name: string }> {
  if (url !== null) return { backend: createBackend({ url, apiKey }), name: url }
  const found = await findBackend({ apiKey })
  if (found !== null)
    return { backend: found.backend, name: `${found.kind.name} at ${found.backend.url}` }
  const tried = BACKEND_KINDS.map(({ name, port }) => `${name} (${port})`).join(', ')
  throw new AgentFailure(
    `no inference server was found on this machine; tried ${tried}. Name one with BACKEND_URL or --backend`,
  )
}

/** A kind of local inference server: where it usually listens, and where it says that it is up. */
type BackendKind = {
  readonly name: string
  readonly port: number
  readonly healthPath: string
}

/**
 * The servers that are looked for, in this order. Ports and paths are the defaults of each server's
 * documentation.
 */
const BACKEND_KINDS: readonly BackendKind[] = [
  { name: 'vLLM', port: 8000, healthPath: '/health' },
  { name: 'SGLang', port: 30_000, healthPath: '/health' },
  // Answers 503 while it loads a model.
  { name: 'llama.cpp', port: 8080, healthPath: '/health' },
  { name: 'Ollama', port: 11_434, healthPath: '/' },
  { name: 'LM Studio', port: 1234, healthPath: '/v1/models' },
]

/** A server that was found, with the models it offers. */
type FoundBackend = {
  readonly kind: BackendKind
  readonly backend: Backend
  readonly models: readonly string[]
}

/**
 * Looks for a server on this machine, on the usual port of each kind, and gives the first that is
 * up and lists models; null when none is. The caller closes it.
 */
export async function findBackend(options: {
  readonly apiKey: string | null
  readonly kinds?: readonly BackendKind[]
}): Promise<FoundBackend | null> {
  const tries = (options.kinds ?? BACKEND_KINDS).map((kind) => tryBackend(kind, options.apiKey))
  const found = (await Promise.all(tries)).filter((candidate) => candidate !== null)
  const [first = null, ...others] = found
  await Promise.all(others.map(({ backend }) => backend.close()))
  return first
}

async function tryBackend(kind: BackendKind, apiKey: string | null): Promise<FoundBackend | null> {
  const backend = createBackend({ url: `http://127.0.0.1:${kind.port}`, apiKey })
  const models = (await backend.isHealthy(kind.healthPath))
    ? await backend.listModels().catch(() => [])
    : []
  if (models.length > 0) return { kind, backend, models }
  await backend.close()
  return null
}
