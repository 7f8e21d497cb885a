import { once } from 'node:events'
import { createServer, type Server, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'

/** Connections at once: one or two collectors. */
const CONNECTIONS_MAX = 32
const REQUEST_TIMEOUT_MS = 10_000

/** What is served: the text of a scrape, read when it is asked for. */
export type MetricsText = { readonly contentType: string; readonly read: () => Promise<string> }

export type MetricsServer = { readonly url: string; close(): Promise<void> }

/**
 * Serves `GET /metrics` in Prometheus' text format at `host` and `port` (0 takes a free one), and nothing else. It asks for no key:
 * whoever can connect can read. Rejects with the system's error when the port is taken.
 */
export async function startMetricsServer(
  metrics: MetricsText,
  { host, port }: { readonly host: string; readonly port: number },
): Promise<MetricsServer> {
  const server = createServer({ requestTimeout: REQUEST_TIMEOUT_MS }, (request, response) => {
    if (request.url?.split('?', 1)[0] !== '/metrics') end(response, 404, 'Only /metrics is here\n')
    else if (request.method !== 'GET' && request.method !== 'HEAD')
      end(response, 405, 'Only GET\n', { allow: 'GET, HEAD' })
    else void answer(metrics, response)
  })
  server.maxConnections = CONNECTIONS_MAX
  server.listen({ host, port })
  await once(server, 'listening')
  return { url: urlOf(server), close: () => stop(server) }
}

async function answer({ contentType, read }: MetricsText, response: ServerResponse): Promise<void> {
  try {
    end(response, 200, await read(), { 'content-type': contentType })
  } catch {
    end(response, 500, 'The metrics could not be read\n')
  }
}

function end(
  response: ServerResponse,
  status: number,
  text: string,
  headers: Readonly<Record<string, string>> = {},
): void {
  response.on('error', () => {})
  response
    .writeHead(status, {
      'content-type': 'text/plain; charset=utf-8',
      'content-length': Buffer.byteLength(text),
      'x-content-type-options': 'nosniff',
      'cache-control': 'no-store',
      ...headers,
    })
    .end(text)
}

function urlOf(server: Server): string {
  const { address, family, port } = server.address() as AddressInfo
  return `http://${family === 'IPv6' ? `[${address}]` : address}:${port}/metrics`
}

async function stop(server: Server): Promise<void> {
  server.closeAllConnections()
  await new Promise((resolve) => server.close(resolve))
}
