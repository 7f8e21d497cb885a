import { randomInt } from 'node:crypto'
import { createServer } from 'node:net'
import { setTimeout as sleep } from 'node:timers/promises'
import { StartFailure } from '../runtime/starting.ts'

/** The chain of a killed gateway ends within this time (guard.ts). */
const PORT_WAIT_MS = 3_000
const PORT_POLL_MS = 50

/**
 * Linux (from 32768), macOS and Windows (from 49152) choose higher ports for outgoing connections.
 * So no connection takes the port while the chain restarts.
 */
const CHOSEN_PORTS = { first: 20_000, end: 32_000 }

/**
 * Returns `port` if it is free on 127.0.0.1. For 0, returns any free port. Another program can
 * still take the port. Throws StartFailure, which names CHAIN_PORT, when the port stays in use.
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
        `local chain: CHAIN_PORT ${candidate} is in use by another program; ` +
          'stop that program, or set CHAIN_PORT to another port (0 means any free port)',
      )
    if (port !== 0) await sleep(PORT_POLL_MS)
  }
}

/** The error code. Null when the port is free. */
function tryPort(port: number): Promise<string | null> {
  return new Promise((resolve) => {
    const server = createServer()
    server.once('error', (error: NodeJS.ErrnoException) => resolve(error.code ?? 'unknown'))
    server.listen({ port, host: '127.0.0.1', exclusive: true }, () =>
      server.close(() => resolve(null)),
    )
  })
}
