import cluster, { type Worker } from 'node:cluster'
import { join } from 'node:path'
import type { GatewayConfig } from './config.ts'
import type { GatewayReady } from './local/banner.ts'
import type { Logger } from './observability/logger.ts'
import { backOffMs } from './runtime/back-off.ts'

/** Pause before an ended process is started again. */
const BACKOFF = { minMs: 500, maxMs: 30_000 }
/** A process that ran this long did not fail at its start. */
const SETTLED_MS = 60_000

/**
 * Returns the variables for the gateway process with the index `place`, from 0. Each process is a
 * whole gateway. The processes share only the socket that accepts calls.
 */
export function variablesOf(
  place: number,
  { metrics, controlSocket, dataFolder, isProduction }: GatewayConfig,
): Readonly<Record<string, string>> {
  return {
    ...(metrics === null || metrics.port === 0
      ? {}
      : { METRICS_PORT: String(metrics.port + place) }),
    ...(controlSocket === null ? {} : { CONTROL_SOCKET: `${controlSocket}.${place}` }),
    // In production the data folder contains only images. All processes serve the same images.
    ...(isProduction ? {} : { DATA_DIR: join(dataFolder, `process-${place}`) }),
  }
}

/**
 * Runs `config.processes` gateways, each in its own process, behind one listening socket
 * (node:cluster). This process itself serves no calls. A process that ends is started again. If a
 * process cannot complete its first start, all processes are ended. Signals go to all processes.
 * SIGHUP makes them read settings again. A starting process gets SIGHUP when it is ready. Resolves
 * with the exit code when all processes have ended.
 */
export function superviseProcesses(
  config: GatewayConfig,
  { log, onHangup }: { readonly log: Logger; readonly onHangup: (listener: () => void) => void },
): Promise<number> {
  const { promise, resolve } = Promise.withResolvers<number>()
  const places = new Map<number, Worker>()
  const pauses = new Set<NodeJS.Timeout>()
  const ready = new Set<number>()
  /** Starting processes that may have read their settings before SIGHUP. */
  const stale = new Set<number>()
  let isStopping = false
  let isAnnounced = false
  let exitCode = 0

  function start(place: number, failures: number): void {
    const worker = cluster.fork(variablesOf(place, config))
    const startedAt = performance.now()
    places.set(place, worker)
    worker.on('message', (message: GatewayReady) => {
      if (message.kind !== 'ready') return
      ready.add(place)
      if (stale.delete(place)) worker.process.kill('SIGHUP')
      log.info({ process: place, pid: worker.process.pid ?? 0 }, 'process ready')
      if (isAnnounced || ready.size < config.processes) return
      isAnnounced = true
      process.send?.(message)
    })
    const onExit = (code: number | null, signal: string | null) => {
      places.delete(place)
      stale.delete(place)
      const wasReady = ready.delete(place)
      if (isStopping || !(wasReady || isAnnounced)) end(code ?? 1)
      else
        again(place, {
          failures: performance.now() - startedAt > SETTLED_MS ? 0 : failures,
          code,
          signal,
        })
    }
    worker.on('exit', onExit)
    worker.on('error', (error: unknown) => {
      log.error({ err: error, process: place }, 'process failed')
      // A process that could not be started has no `exit` event.
      if (worker.process.pid === undefined) onExit(1, null)
    })
  }

  function again(
    place: number,
    ended: {
      readonly failures: number
      readonly code: number | null
      readonly signal: string | null
    },
  ): void {
    const failures = ended.failures + 1
    const pauseMs = backOffMs(failures, BACKOFF, { jitter: 'half' })
    const { code, signal } = ended
    log.error({ process: place, code, signal, pauseMs }, 'process ended, starting it again')
    const timer = setTimeout(() => {
      pauses.delete(timer)
      start(place, failures)
    }, pauseMs)
    pauses.add(timer)
  }

  /**
   * Called when a process has ended and is not started again. Ends the other processes if no stop
   * was requested.
   */
  function end(code: number): void {
    exitCode = Math.max(exitCode, code)
    if (!isStopping) stop('SIGTERM')
    if (places.size === 0) resolve(exitCode)
  }

  function stop(signal: NodeJS.Signals): void {
    isStopping = true
    for (const timer of pauses) clearTimeout(timer)
    for (const worker of places.values()) worker.process.kill(signal)
    if (places.size === 0) resolve(exitCode)
  }

  onHangup(() => {
    for (const [place, worker] of places)
      if (ready.has(place)) worker.process.kill('SIGHUP')
      else stale.add(place)
  })
  // The second signal makes the processes skip the drain delay. The third ends them at once.
  for (const signal of ['SIGINT', 'SIGTERM'] as const) process.on(signal, () => stop(signal))
  process.on('disconnect', () => stop('SIGTERM'))
  for (let place = 0; place < config.processes; place++) start(place, 0)
  return promise
}
