import type { AddressInfo } from 'node:net'
import { ConfigurationError } from '../../runtime/read-settings.ts'
import { type DemoConfig, type DemoReady, readDemoConfig } from './config.ts'
import { createDemoServer } from './server.ts'

try {
  start(readDemoConfig())
} catch (fault) {
  if (!(fault instanceof ConfigurationError)) throw fault
  console.error(fault.message)
  process.exitCode = 1
}

function start(config: DemoConfig): void {
  const server = createDemoServer({ delayMs: config.delayMs, now: Date.now })
  server.once('error', (fault) => {
    console.error(
      `The demo provider cannot listen on ${config.host}:${config.port}: ${fault.message}`,
    )
    process.exit(1)
  })
  server.listen(config.port, config.host, () => {
    const origin = originOf(server.address())
    const ready: DemoReady = { kind: 'ready', origin }
    if (process.send) process.send(ready)
    else console.log(`Demo provider (a demonstration: no model answers) on ${origin}/v1`)
  })
  const stop = () => {
    server.close(() => process.exit(0))
    server.closeAllConnections()
  }
  process.once('SIGTERM', stop)
  process.once('SIGINT', stop)
  // The parent has ended. Without this listener, this process would continue forever.
  process.once('disconnect', stop)
}

function originOf(address: AddressInfo | string | null): string {
  if (address === null || typeof address === 'string') throw new Error('expected a TCP address')
  return `http://${address.family === 'IPv6' ? `[${address.address}]` : address.address}:${address.port}`
}
