import { once } from 'node:events'
import { createServer } from 'node:net'
import type { App } from '../api/app.ts'
import type { GatewayConfig } from '../config.ts'
import { StartFailure } from '../local/supervised-process.ts'

/** Begins to listen; gives the address, as a URL. Rejects with StartFailure. */
export async function listen(app: App, config: GatewayConfig): Promise<string> {
  const { address, family, port } = await app.listen(config).catch((error) => refuseAddress(config, error))
  return `http://${family === 'IPv6' ? `[${address}]` : address}:${port}`
}

/** Tells of a taken port at once, and not after all parts were started for nothing. Rejects with StartFailure. */
export async function tryAddress(config: GatewayConfig): Promise<void> {
  const server = createServer()
  try {
    server.listen({ host: config.host, port: config.port })
    await once(server, 'listening').catch((error) => refuseAddress(config, error))
  } finally {
    await new Promise((resolve) => server.close(resolve))
  }
}

function refuseAddress({ host, port }: GatewayConfig, error: unknown): never {
  const code = error instanceof Error && 'code' in error ? error.code : null
  const reason =
    code === 'EADDRINUSE'
      ? `PORT ${port} is in use by another program; end it, or set PORT to another port (0 takes a free one)`
      : `HOST ${host} and PORT ${port} cannot be listened on (${code})`
  throw new StartFailure(`gateway: ${reason}`)
}
