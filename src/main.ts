import { pino } from 'pino'
import pretty from 'pino-pretty'
import { type GatewayConfig, readGatewayConfig } from './config.ts'
import { StartFailure } from './local/supervised-process.ts'
import { createLogger, type Logger } from './logger.ts'
import { ConfigurationError } from './settings/read-settings.ts'
import { writeBanner } from './start/banner.ts'
import { type Gateway, type GatewayFacts, startGateway } from './start/gateway.ts'
import { DataFolderInUse } from './stores/folder-lock.ts'

/**
 * The gateway's process. Standard output gets the banner, standard error the log: readable on a terminal, else a JSON
 * object a line. SIGINT and SIGTERM stop it in good order, a second one at once. A parent with an IPC channel gets
 * GatewayReady, and the channel's end stops the gateway. Exit codes: 0 after a stop in good order, 1 after anything else.
 */
export type GatewayReady = { readonly kind: 'ready' } & GatewayFacts

/** What a stop may take beyond the grace for running calls: commits, and the ends of the parts. */
const STOP_MARGIN_MS = 20_000

const config = readConfigOrExit()
const log = createLogger({
  level: config.logLevel,
  destination: process.stderr.isTTY
    ? pretty({ destination: 2, sync: true, translateTime: 'SYS:HH:MM:ss.l' })
    : pino.destination({ dest: 2, sync: true }),
})
process.on('uncaughtException', (error) => die('uncaught exception', error))
process.on('unhandledRejection', (error) => die('unhandled rejection', error))
// Whoever read the banner may be gone (`npm start | head`): that is no reason to stop.
process.stdout.on('error', () => undefined)

const starting = startGateway(config, log)
for (const signal of ['SIGINT', 'SIGTERM', 'disconnect'] as const) process.on(signal, () => stop(signal, log))
await starting.then(announce, refuse)

function readConfigOrExit(): GatewayConfig {
  try {
    return readGatewayConfig()
  } catch (error) {
    if (!(error instanceof ConfigurationError)) throw error
    console.error(error.message)
    process.exit(1)
  }
}

function announce({ facts }: Gateway): void {
  log.info({ url: facts.url, chain_id: facts.chain.id, contract: facts.chain.contract }, 'ready')
  if (!config.isProduction) process.stdout.write(writeBanner(config, facts, performance.now()))
  const ready: GatewayReady = { kind: 'ready', ...facts }
  process.send?.(ready)
}

function refuse(error: unknown): never {
  if (!(error instanceof StartFailure || error instanceof DataFolderInUse)) die('not started', error)
  console.error(`Affidavit did not start:\n  ${error.message.replaceAll('\n', '\n  ')}`)
  process.exit(1)
}

let isStopping = false

async function stop(signal: string, log: Logger): Promise<void> {
  if (isStopping) process.exit(1)
  isStopping = true
  log.info({ signal }, 'stopping')
  setTimeout(() => die('stop took too long', null), config.shutdownGraceMs + STOP_MARGIN_MS).unref()
  try {
    const gateway = await starting
    await gateway.stop()
    log.info({}, 'stopped')
    process.exit(0)
  } catch (error) {
    die('not stopped in good order', error)
  }
}

function die(what: string, error: unknown): never {
  log.error({ err: error }, what)
  process.exit(1)
}
