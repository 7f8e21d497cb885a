import cluster from 'node:cluster'
import { mkdirSync } from 'node:fs'
import { enableCompileCache } from 'node:module'
import { join } from 'node:path'
import { isatty } from 'node:tty'
import type { GatewayConfig } from './config.ts'
import type { Gateway } from './gateway.ts'
import type { GatewayFacts, GatewayReady } from './local/banner.ts'
import type { Logger } from './observability/logger.ts'
import { DataFolderInUse } from './runtime/folder-lock.ts'
import { StartFailure } from './runtime/starting.ts'

/** After the grace for running calls, the commits and the end of the parts may take this long. */
const STOP_MARGIN_MS = 20_000

/** One Ctrl-C may arrive twice: from the terminal, and again from npm. */
const SAME_SIGNAL_MS = 500

/**
 * The gateway's process: it reads its configuration, then serves until a signal ends it. The first
 * statement is before the slow imports: from then on, SIGHUP makes the process read its settings
 * again. SIGHUP ends the process only when the terminal was closed.
 */
const onHangup = keepHangups()
const warnings: string[] = []
const config = await readConfigOrExit()
if (!config.isProduction) cacheCompiledCode(config.dataFolder)
if (config.processes > 1 && cluster.isPrimary) await supervise(config)
else await serve(config)

/**
 * Keeps a SIGHUP until a listener is set, because by default Node would end the process. When
 * standard input is a terminal, SIGHUP means that the terminal was closed, and stops the process
 * like SIGTERM.
 */
function keepHangups(): (listener: () => void) => void {
  let added: (() => void) | null = null
  let isWaiting = false
  process.on('SIGHUP', () => {
    if (isatty(0)) process.emit('SIGTERM')
    else if (added === null) isWaiting = true
    else added()
  })
  return (listener) => {
    added = listener
    if (isWaiting) listener()
  }
}

async function readConfigOrExit(): Promise<GatewayConfig> {
  const { readGatewayConfig } = await import('./config.ts')
  const { ConfigurationError } = await import('./runtime/read-settings.ts')
  try {
    return readGatewayConfig(undefined, (sentence) => warnings.push(sentence))
  } catch (error) {
    if (!(error instanceof ConfigurationError)) throw error
    console.error(error.message)
    process.exit(1)
  }
}

/**
 * Stores compiled code in files, so that the next start takes half the time. A user who can write
 * these files can change the code that runs. Therefore the files are in the data folder, and not in
 * Node.js's default folder below the system's temporary folder.
 */
function cacheCompiledCode(dataFolder: string): void {
  try {
    mkdirSync(dataFolder, { recursive: true, mode: 0o700 })
    enableCompileCache(join(dataFolder, 'compiled'))
  } catch {
    // A part that needs the folder reports the fault.
  }
}

/** Runs several gateways behind one socket. Resolves when a signal has ended all of them. */
async function supervise(config: GatewayConfig): Promise<void> {
  const { openProcessLogger } = await import('./observability/logger.ts')
  const { superviseProcesses } = await import('./processes.ts')
  const log = await openProcessLogger(config.logLevel)
  for (const warning of warnings) log.warn({}, warning)
  log.info({ processes: config.processes }, 'starting processes')
  if (config.bus === null)
    log.warn({}, 'without NATS_URL a node serves the callers of one process, by chance')
  process.exit(await superviseProcesses(config, { log, onHangup }))
}

/**
 * Runs the gateway until a signal ends the process. The banner goes to standard output. The log
 * goes to standard error: as readable lines on a terminal, else as one JSON object per line. The
 * first SIGINT or SIGTERM stops the gateway normally. The second skips the drain delay. The third
 * exits at once. When the IPC channel closes, the parent has ended, and the gateway stops without a
 * delay. Exit codes: 0 after a normal stop, else 1.
 */
async function serve(config: GatewayConfig): Promise<void> {
  // Node.js caches the compiled code of modules that are loaded after this line.
  const { openProcessLogger } = await import('./observability/logger.ts')
  const { compose } = await import('./compose.ts')
  const log = await openProcessLogger(config.logLevel)
  if (!cluster.isWorker) for (const warning of warnings) log.warn({}, warning)
  const die = (what: string, error: unknown): never => {
    log.error({ err: error }, what)
    process.exit(1)
  }
  process.on('uncaughtException', (error) => die('uncaught exception', error))
  process.on('unhandledRejection', (error) => die('unhandled rejection', error))
  // If the program that reads the banner has ended (`npm start | head`), the gateway continues.
  process.stdout.on('error', () => undefined)
  log.info({ data: config.dataFolder }, 'starting')
  const starting = compose(config, log)
  // A SIGHUP during the start takes effect after the start, because the start may have read files
  // before they changed.
  onHangup(async () => {
    const gateway = await starting.catch(() => null)
    await gateway?.reload()
  })
  stopOnSignals({ starting, graceMs: config.shutdownGraceMs, log, die })
  try {
    await announce(config, (await starting).facts, log)
  } catch (error) {
    if (!(error instanceof StartFailure || error instanceof DataFolderInUse))
      die('not started', error)
    else refuse(error)
  }
}

async function announce(config: GatewayConfig, facts: GatewayFacts, log: Logger): Promise<void> {
  log.info(
    {
      url: facts.url,
      chain_id: facts.chain.id,
      contract: facts.chain.contract,
      metrics: facts.metricsUrl,
    },
    'ready',
  )
  if (!config.isProduction) {
    const { writeBanner } = await import('./local/banner.ts')
    process.stdout.write(writeBanner(config, facts, performance.now()))
  }
  const ready: GatewayReady = { kind: 'ready', ...facts }
  process.send?.(ready)
}

/** Logs no stack, because the message describes what the operator must change. */
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
  readonly starting: Promise<Pick<Gateway, 'drain' | 'stop'>>
  readonly graceMs: number
  readonly log: Logger
  readonly die: (what: string, error: unknown) => never
}): void {
  let signalledAt: number | null = null
  /** Ends the running drain delay. Null when no delay runs. */
  let skip: AbortController | null = null
  const stop = async (signal: string) => {
    const sinceMs = performance.now() - (signalledAt ?? Number.NEGATIVE_INFINITY)
    const isFirst = signalledAt === null
    if (sinceMs <= SAME_SIGNAL_MS) return
    signalledAt = performance.now()
    if (!isFirst) {
      if (skip === null) process.exit(1)
      skip.abort()
      return
    }
    log.info({ signal }, 'stopping')
    try {
      const gateway = await starting
      if (signal !== 'disconnect') {
        skip = new AbortController()
        await gateway.drain(skip.signal)
        skip = null
      }
      setTimeout(() => die('stop took too long', null), graceMs + STOP_MARGIN_MS).unref()
      await gateway.stop()
      log.info({}, 'stopped')
      process.exit(0)
    } catch (error) {
      die('not stopped in good order', error)
    }
  }
  for (const signal of ['SIGINT', 'SIGTERM', 'disconnect'] as const)
    process.on(signal, () => stop(signal))
}
