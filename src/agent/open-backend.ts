import { type Backend, createBackend } from './backend.ts'
import type { BackendConfig } from './config.ts'
import { BACKEND_KINDS, findBackend } from './find-backend.ts'
import { AgentFailure } from './registration.ts'

/**
 * Gives the backend of a configuration: the one it names, whether or not it is up, or the one that is found on this
 * machine. Rejects with AgentFailure when there is none. `name` tells people which it is.
 */
export async function openBackend({
  url,
  apiKey,
}: BackendConfig): Promise<{ readonly backend: Backend; readonly name: string }> {
  if (url !== null) return { backend: createBackend({ url, apiKey }), name: url }
  const found = await findBackend({ apiKey })
  if (found !== null) return { backend: found.backend, name: `${found.kind.name} at ${found.backend.url}` }
  const tried = BACKEND_KINDS.map(({ name, port }) => `${name} (${port})`).join(', ')
  throw new AgentFailure(
    `no inference server was found on this machine; tried ${tried}. Name one with BACKEND_URL or --backend`,
  )
}
