import type { GatewayConfig } from '../config.ts'
import { StartFailure } from '../local/supervised-process.ts'
import { openLogDestination } from '../observability/log-destination.ts'
import { createLogger, type Logger } from '../observability/logger.ts'
import { DataFolderInUse } from '../storage/folder-lock.ts'
import { writeBanner } from './banner.ts'
import { type Gateway, startGateway } from './gateway.ts'
import type { GatewayFacts } from './gateway-facts.ts'

/** What a parent that started the gateway with an IPC channel is told once it serves. */
export type GatewayReady = { readonly kind: 'ready' } & GatewayFacts

/** What a stop may take beyond the grace for running calls: commits, and the ends of the parts. */
const STOP_MARGIN_MS = 20_000

/** One Ctrl-C may come twice: from the terminal, and passed on by npm. */
const SAME_SIGNAL_MS = 500

/**
 * Runs the gateway until a signal ends the process. Standard output gets the banner, standard error the log: readable on a
 * terminal, else a JSON object a line. SIGINT and SIGTERM stop it in good order, a second one at once; the end of an IPC
 * channel does too, because it means that the parent is gone. Exit codes: 0 after a stop in good order, else 1.
 */
export async function serve(config: GatewayConfig): Promise<void> {
  const log = createLogger({ level: config.logLevel, destination: await openLogDestination() })
  const die = (what: string, error: unknown): never => {
    log.error({ err: error }, what)
    process.exit(1)
  }
  process.on('uncaughtException', (error) => die('uncaught exception', error))
  process.on('unhandledRejection', (error) => die('unhandled rejection', error))
  // Whoever read the banner may be gone (`npm start | head`): that is no reason to stop.
  process.stdout.on('error', () => undefined)
  const starting = startGateway(config, log)
  stopOnSignals({ starting, graceMs: config.shutdownGraceMs, log, die })
  try {
    announce(config, await starting, log)
  } catch (error) {
    if (!(error instanceof StartFailure || error instanceof DataFolderInUse)) die('not started', error)
    else refuse(error)
  }
}

function announce(config: GatewayConfig, { facts }: Gateway, log: Logger): void {
  log.info(
    { url: facts.url, chain_id: facts.chain.id, contract: facts.chain.contract, metrics: facts.metricsUrl },
    'ready',
  )
  if (!config.isProduction) process.stdout.write(writeBanner(config, facts, performance.now()))
  const ready: GatewayReady = { kind: 'ready', ...facts }
  process.send?.(ready)
}

/** Without a stack: the message says what to mend. */
function refuse(error: Error): never {
  console.error(`Affidavit did not start:\n  ${error.message.replaceAll('\n', '\n  ')}`)
  process.exit(1)
}

function stopOnSignals({
  starting,
  graceMs,
  log,
  die,
}: {
  readonly starting: Promise<Gateway>
  readonly graceMs: number
  readonly log: Logger
  readonly die: (what: string, error: unknown) => never
}): void {
  let stoppingSince: number | null = null
  const stop = async (signal: string) => {
    if (stoppingSince !== null) {
      if (performance.now() - stoppingSince > SAME_SIGNAL_MS) process.exit(1)
      return
    }
    stoppingSince = performance.now()
    log.info({ signal }, 'stopping')
    setTimeout(() => die('stop took too long', null), graceMs + STOP_MARGIN_MS).unref()
    try {
      const gateway = await starting
      await gateway.stop()
      log.info({}, 'stopped')
      process.exit(0)
    } catch (error) {
      die('not stopped in good order', error)
    }
  }
  for (const signal of ['SIGINT', 'SIGTERM', 'disconnect'] as const) process.on(signal, () => stop(signal))
}
