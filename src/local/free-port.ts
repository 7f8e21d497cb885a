import { createServer } from 'node:net'
import { setTimeout as sleep } from 'node:timers/promises'
import { StartFailure } from '../runtime/starting.ts'

/**
 * A leftover chain of a gateway that was killed is gone this soon (guard.ts), so its port is waited
 * for.
 */
const PORT_WAIT_MS = 3_000
const PORT_POLL_MS = 50

/**
 * Gives `port` once it can be listened on at 127.0.0.1, or any free one for 0. Rejects with
 * StartFailure, naming CHAIN_PORT, when it stays in use. Between this and its use another program
 * can still take it.
 */
export async function awaitFreePort(port: number): Promise<number> {
  const until = performance.now() + PORT_WAIT_MS
  for (;;) {
    const bound = await tryPort(port)
    if (bound.kind === 'free') return bound.port
    if (bound.code !== 'EADDRINUSE') {
      throw new StartFailure(`local chain: CHAIN_PORT ${port} cannot be used (${bound.code})`)
    }
    if (performance.now() > until) {
      throw new StartFailure(
        `local chain: CHAIN_PORT ${port} is in use by another program; end it, or set CHAIN_PORT to another port (0 takes any free one)`,
      )
    }
    await sleep(PORT_POLL_MS)
  }
}

type Bound =
  | { readonly kind: 'free'; readonly port: number }
  | { readonly kind: 'refused'; readonly code: string }

function tryPort(port: number): Promise<Bound> {
  return new Promise((resolve) => {
    const server = createServer()
    server.once('error', (error: NodeJS.ErrnoException) => {
      resolve({ kind: 'refused', code: error.code ?? 'unknown' })
    })
    server.listen({ port, host: '127.0.0.1', exclusive: true }, () => {
      const address = server.address()
      const bound = typeof address === 'object' && address !== null ? address.port : port
      server.close(() => resolve({ kind: 'free', port: bound }))
    })
  })
}
