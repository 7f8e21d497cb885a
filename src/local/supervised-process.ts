import { type ChildProcess, spawn } from 'node:child_process'
import { getCompileCacheDir } from 'node:module'
import { createInterface } from 'node:readline'
import { setTimeout as sleep } from 'node:timers/promises'
import type { Logger } from '../observability/logger.ts'
import type { BackOffBounds } from '../runtime/back-off.ts'
import { StartFailure } from '../runtime/starting.ts'
import { keepRunning } from './keep-running.ts'

export type ProcessPlan<Ready> = {
  /** For messages and logs. */
  readonly name: string
  /** This process's Node.js runs this file. `words` are the file's arguments. */
  readonly file: string
  readonly words?: readonly string[]
  /**
   * Returns all variables of the process, except the variables of Node's own cache. `last` is the
   * last ready notice, null before the first start.
   */
  readonly environmentOf: (last: Ready | null) => Readonly<Record<string, string>>
  /** Reads an output line or a channel message. Null if it is not the ready notice. */
  readonly parseReady: (notice: unknown) => Ready | null
  /** Returns the text of a log line's fault. Null for a line without a fault. Default: the line. */
  readonly describeFault?: (line: string) => string | null
  readonly startTimeoutMs: number
  /** Time between SIGTERM and SIGKILL. */
  readonly stopTimeoutMs: number
}

export type SupervisedProcess<Ready> = {
  /** The first ready notice. */
  readonly ready: Ready
  /** Null between the end of one process and the start of the next. */
  pid(): number | null
  /** Ends the process, and does not start it again. */
  stop(): Promise<void>
}

const RESTART_BACKOFF: BackOffBounds = { minMs: 100, maxMs: 10_000 }

/**
 * Starts a process, and starts it again each time it ends. Rejects with StartFailure if the first
 * process does not become ready.
 */
export async function superviseProcess<Ready>(
  plan: ProcessPlan<Ready>,
  log: Logger,
): Promise<SupervisedProcess<Ready>> {
  const keeper = await keepRunning<Life<Ready>>(
    {
      name: plan.name,
      backOff: RESTART_BACKOFF,
      start: (last) => startProcess(plan, last?.ready ?? null, log),
    },
    log,
  )
  return {
    ready: keeper.first.ready,
    pid: () => keeper.current()?.child.pid ?? null,
    stop: keeper.stop,
  }
}

/** The ready notice of one of our programs, `{ kind: 'ready', … }`. Null for any other message. */
export function readReady<Ready extends { readonly kind: 'ready' }>(notice: unknown): Ready | null {
  const isReady =
    typeof notice === 'object' && notice !== null && 'kind' in notice && notice.kind === 'ready'
  return isReady ? (notice as Ready) : null
}

/** One run of a process. */
export type Life<Ready> = {
  readonly child: ChildProcess
  readonly ready: Ready
  /** Resolves when the process has ended and its output was read. Never rejects. */
  readonly ended: Promise<void>
  /** The first lines in which the process reported a fault. */
  said(): string
  stop(): Promise<void>
}

/**
 * Resolves when the process is ready. The process has its own session, so that Ctrl-C in a terminal
 * reaches only the gateway. Its IPC channel closes when the gateway ends. Rejects with
 * StartFailure.
 */
export async function startProcess<Ready>(
  plan: ProcessPlan<Ready>,
  last: Ready | null,
  log: Logger,
): Promise<Life<Ready>> {
  const child = spawn(process.execPath, [plan.file, ...(plan.words ?? [])], {
    env: { ...plan.environmentOf(last), NODE_COMPILE_CACHE: getCompileCacheDir() },
    stdio: ['ignore', 'pipe', 'pipe', 'ipc'],
    detached: true,
  })
  const faults: string[] = []
  const ended = new Promise<void>((resolve) => {
    child.once('close', () => resolve())
    child.once('error', () => resolve())
  })
  const ready = new Promise<Ready>((resolve) => {
    const offer = (notice: unknown) => {
      const value = plan.parseReady(notice)
      if (value !== null) resolve(value)
      else if (typeof notice === 'string') forward(notice)
    }
    child.on('message', offer)
    if (child.stdout) createInterface({ input: child.stdout }).on('line', offer)
    if (child.stderr) createInterface({ input: child.stderr }).on('line', forward)
  })
  function forward(line: string): void {
    const fault = plan.describeFault === undefined ? line : plan.describeFault(line)
    if (fault !== null && faults.length < FAULTS_MAX) faults.push(fault)
    logLine(log, plan.name, line)
  }
  const outcome = await Promise.race([
    ready.then((value) => ({ kind: 'ready' as const, value })),
    ended.then(() => ({ kind: 'ended' as const })),
    sleep(plan.startTimeoutMs, { kind: 'late' as const }, { ref: false }),
  ])
  const stop = () => endProcess(child, ended, plan.stopTimeoutMs)
  const said = () => faults.join('\n')
  if (outcome.kind === 'ready') return { child, ready: outcome.value, ended, said, stop }
  child.kill('SIGKILL')
  const what =
    outcome.kind === 'late'
      ? `was not ready within ${plan.startTimeoutMs} ms`
      : 'ended while starting'
  throw new StartFailure([`${plan.name} ${what}`, ...faults].join('\n  - '))
}

const FAULTS_MAX = 50

async function endProcess(child: ChildProcess, ended: Promise<void>, timeoutMs: number) {
  child.kill('SIGTERM')
  const timer = setTimeout(() => child.kill('SIGKILL'), timeoutMs)
  await ended
  clearTimeout(timer)
}

const LEVELS = ['error', 'warn', 'info', 'debug'] as const

/** A line of a JSON log keeps its level and members. */
function logLine(log: Logger, name: string, line: string): void {
  const { level, event, msg = event, time: _, ...facts } = parseLogLine(line) ?? { line }
  const known = LEVELS.find((name) => name === level) ?? 'warn'
  log[known]({ process: name, ...facts }, typeof msg === 'string' ? msg : 'output')
}

/** Null for a line that is not JSON, such as Node.js's warnings and stacks. */
export function parseLogLine(line: string): Readonly<Record<string, unknown>> | null {
  try {
    const value: unknown = JSON.parse(line)
    return typeof value === 'object' && value !== null ? { ...value } : null
  } catch {
    return null
  }
}
