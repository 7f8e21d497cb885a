import { once } from 'node:events'
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'

/** A whole request that a scripted endpoint received. */
export type EndpointRequest = {
  readonly method: string
  /** Includes the query. */
  readonly url: string
  readonly headers: IncomingMessage['headers']
  readonly body: Buffer
  /** JSON value of the body, or undefined. */
  readonly json: unknown
}

/** How it answers: with a value as JSON, or by itself. */
export type EndpointScript = (request: EndpointRequest, response: ServerResponse) => unknown

/** An HTTP server in place of a paid service, which answers in that service's wire format. */
export type ScriptedEndpoint = {
  readonly origin: string
  readonly requests: readonly EndpointRequest[]
  /** Calls whose client left before their answer was complete. */
  left(): number
  setScript(script: EndpointScript): void
  stop(): Promise<void>
}

/**
 * Starts an endpoint on an ephemeral loopback port. The script's result is sent as JSON, unless the
 * script answered itself.
 */
export async function startScriptedEndpoint(
  first: EndpointScript = () => ({}),
): Promise<ScriptedEndpoint> {
  let script = first
  let leftCount = 0
  const requests: EndpointRequest[] = []
  const server = createServer(async (request, response) => {
    response.once('close', () => {
      if (!response.writableFinished) leftCount++
    })
    const parts: Buffer[] = []
    for await (const part of request) parts.push(part)
    const seen = describe(request, Buffer.concat(parts))
    requests.push(seen)
    const answer = await script(seen, response)
    if (answer === undefined || response.headersSent) return
    response.writeHead(200, { 'content-type': 'application/json' }).end(JSON.stringify(answer))
  })
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  const { port } = server.address() as AddressInfo
  return {
    origin: `http://127.0.0.1:${port}`,
    requests,
    left: () => leftCount,
    setScript: (next) => {
      script = next
    },
    stop: async () => {
      server.closeAllConnections()
      await new Promise((resolve) => server.close(resolve))
    },
  }
}

/** Answers with a status and JSON. */
export function refuseWith(
  status: number,
  body: unknown,
  headers: Readonly<Record<string, string>> = {},
): EndpointScript {
  return (_, response) => {
    response
      .writeHead(status, { 'content-type': 'application/json', ...headers })
      .end(JSON.stringify(body))
  }
}

function describe(
  { method = '', url = '', headers }: IncomingMessage,
  body: Buffer,
): EndpointRequest {
  return { method, url, headers, body, json: tryJson(body) }
}

function tryJson(body: Buffer): unknown {
  try {
    return JSON.parse(body.toString('utf8'))
  } catch {
    return undefined
  }
}
