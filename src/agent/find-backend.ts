import { type Backend, createBackend } from './backend.ts'

/** A kind of local inference server: where it usually listens, and where it says that it is up. */
export type BackendKind = {
  readonly name: string
  readonly port: number
  readonly healthPath: string
}

/** The servers that are looked for, in this order. Ports and paths are the defaults of each server's documentation. */
export const BACKEND_KINDS: readonly BackendKind[] = [
  { name: 'vLLM', port: 8000, healthPath: '/health' },
  { name: 'SGLang', port: 30_000, healthPath: '/health' },
  // Answers 503 while it loads a model.
  { name: 'llama.cpp', port: 8080, healthPath: '/health' },
  { name: 'Ollama', port: 11_434, healthPath: '/' },
  { name: 'LM Studio', port: 1234, healthPath: '/v1/models' },
]

/** A server that was found, with the models it offers. */
export type FoundBackend = {
  readonly kind: BackendKind
  readonly backend: Backend
  readonly models: readonly string[]
}

/**
 * Looks for a server on this machine, on the usual port of each kind, and gives the first that is up and lists models; null
 * when there is none. The caller closes it.
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
  const models = (await backend.isHealthy(kind.healthPath)) ? await backend.listModels().catch(() => []) : []
  if (models.length > 0) return { kind, backend, models }
  await backend.close()
  return null
}
