import { once } from 'node:events'
import type { Server } from 'node:http'
import { ConfigurationError } from '../../runtime/read-settings.ts'
import { type DemoConfig, type DemoReady, readDemoConfig } from './config.ts'
import { createDemoServer } from './server.ts'
import { serverOrigin } from './server-origin.ts'

try {
  await start(readDemoConfig())
} catch (fault) {
  if (!(fault instanceof ConfigurationError)) throw fault
  console.error(fault.message)
  process.exit(1)
}

async function start({ host, port, delayMs, replayFolder, tee }: DemoConfig): Promise<void> {
  const options = { delayMs, now: Date.now }
  const server = createDemoServer({ ...options, replayFolder })
  await listen(server, { host, port })
  const attested =
    tee === null
      ? null
      : await (await import('./start-tee.ts')).startTee({ ...options, ...tee, host })
  const origin = serverOrigin(server)
  const ready: DemoReady = { kind: 'ready', origin, attested: attested?.ready ?? null }
  if (process.send) process.send(ready)
  else console.log(`Demo provider (a demonstration: no model answers) on ${origin}/v1`)
  const stop = () => {
    server.close(() => process.exit(0))
    for (const one of [server, attested?.server]) one?.closeAllConnections()
  }
  process.once('SIGTERM', stop)
  process.once('SIGINT', stop)
  // The channel closes when the parent ends. This process would otherwise continue forever.
  process.once('disconnect', stop)
}

async function listen(
  server: Server,
  { host, port }: { readonly host: string; readonly port: number },
): Promise<void> {
  server.listen(port, host)
  await once(server, 'listening').catch((fault: Error) => {
    console.error(`The demo provider cannot listen on ${host}:${port}: ${fault.message}`)
    process.exit(1)
  })
}
