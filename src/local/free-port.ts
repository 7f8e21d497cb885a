import { randomInt } from 'node:crypto'
import { createServer } from 'node:net'
import { setTimeout as sleep } from 'node:timers/promises'
import { StartFailure } from '../runtime/starting.ts'

/**
 * When a gateway was killed, its chain ends within this time (guard.ts). So the start waits for its
 * port.
 */
const PORT_WAIT_MS = 3_000
const PORT_POLL_MS = 50

/**
 * Range in which free ports are chosen. It is below the ports that Linux (32768), macOS and Windows
 * (49152) give to outgoing connections and to programs that listen on port 0. So such a connection
 * or program does not take the port before its use, or while the program that listens on it
 * restarts.
 */
const CHOSEN_PORTS = { first: 20_000, end: 32_000 }

/**
 * Gives `port` when 127.0.0.1 can listen on it; for 0, gives any free port. Rejects with
 * StartFailure, which names CHAIN_PORT, when the port stays in use. Another program can still take
 * the port before it is used.
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

/** Tries to listen on the port. Gives the error code; null when the port is free. */
function tryPort(port: number): Promise<string | null> {
  return new Promise((resolve) => {
    const server = createServer()
    server.once('error', (error: NodeJS.ErrnoException) => resolve(error.code ?? 'unknown'))
    server.listen({ port, host: '127.0.0.1', exclusive: true }, () =>
      server.close(() => resolve(null)),
    )
  })
}
