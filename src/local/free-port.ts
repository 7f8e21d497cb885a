import { randomInt } from 'node:crypto'
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
 * Where free ports are chosen: below those that Linux (32768), macOS and Windows (49152) give to
 * outgoing connections and to programs that listen on port 0, so that neither takes one between its
 * choice and its use, or while a program that listened on it is started again.
 */
const CHOSEN_PORTS = { first: 20_000, end: 32_000 }

/**
 * Gives `port` once it can be listened on at 127.0.0.1, or any free one for 0. Rejects with
 * StartFailure, naming CHAIN_PORT, when it stays in use. Between this and its use another program
 * that asks for this very port can still take it.
 */
export async function awaitFreePort(port: number): Promise<number> {
  const until = performance.now() + PORT_WAIT_MS
  for (;;) {
    const candidate = port === 0 ? randomInt(CHOSEN_PORTS.first, CHOSEN_PORTS.end) : port
    const fault = await tryPort(candidate)
    if (fault === null) return candidate
    if (fault !== 'EADDRINUSE')
      throw new StartFailure(`local chain: CHAIN_PORT ${candidate} cannot be used (${fault})`)
    if (performance.now() > until)
      throw new StartFailure(
        `local chain: CHAIN_PORT ${candidate} is in use by another program; stop that program, or set CHAIN_PORT to another port (0 means any free port)`,
      )
    if (port !== 0) await sleep(PORT_POLL_MS)
  }
}

/** The code of what keeps the port from being listened on; null for a free one. */
function tryPort(port: number): Promise<string | null> {
  return new Promise((resolve) => {
    const server = createServer()
    server.once('error', (error: NodeJS.ErrnoException) => resolve(error.code ?? 'unknown'))
    server.listen({ port, host: '127.0.0.1', exclusive: true }, () =>
      server.close(() => resolve(null)),
    )
  })
}
