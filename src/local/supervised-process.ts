import { type ChildProcess, spawn } from 'node:child_process'
import { getCompileCacheDir } from 'node:module'
import { createInterface } from 'node:readline'
import { setTimeout as sleep } from 'node:timers/promises'
import type { Logger } from '../observability/logger.ts'
import type { BackOffBounds } from '../runtime/back-off.ts'
import { StartFailure } from '../runtime/starting.ts'
import { keepRunning } from './keep-running.ts'

/** How to run a process, and how to know that it can be used. */
export type ProcessPlan<Ready> = {
  /** For people and logs. */
  readonly name: string
  /** TypeScript file that is run by this Node.js, with these words. */
  readonly file: string
  readonly words?: readonly string[]
  /**
   * All variables it gets, but for Node's own cache; `last` is what it said when it was ready the
   * time before.
   */
  readonly environmentOf: (last: Ready | null) => Readonly<Record<string, string>>
  /**
   * Reads what a line of its output or a message over its channel says; null when it is not the
   * ready notice.
   */
  readonly parseReady: (notice: unknown) => Ready | null
  /** What a line of its log says, for people; null when it is not a fault. Default: the line. */
  readonly describeFault?: (line: string) => string | null
  readonly startTimeoutMs: number
  /** From SIGTERM to SIGKILL. */
  readonly stopTimeoutMs: number
}

/** A process that is kept running. */
export type SupervisedProcess<Ready> = {
  /** What it said when it was first ready. */
  readonly ready: Ready
  /** Null between two lives. */
  pid(): number | null
  /** Ends it; it is not started again. */
  stop(): Promise<void>
}

/** Pause before a process that ended is started again. */
const RESTART_BACKOFF: BackOffBounds = { minMs: 100, maxMs: 10_000 }

/**
 * Starts a process as startProcess does, and starts it again whenever it ends. Rejects with
 * StartFailure when it does not become ready the first time.
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

/** Reads the ready notice of a program of ours, `{ kind: 'ready', … }`; null for anything else. */
export function readReady<Ready extends { readonly kind: 'ready' }>(notice: unknown): Ready | null {
  const isReady =
    typeof notice === 'object' && notice !== null && 'kind' in notice && notice.kind === 'ready'
  return isReady ? (notice as Ready) : null
}

/** A process from its start to its end. */
export type Life<Ready> = {
  readonly child: ChildProcess
  readonly ready: Ready
  /** Resolves when it is gone and its output was read. Never rejects. */
  readonly ended: Promise<void>
  /** The first lines that it wrote of what is wrong. */
  said(): string
  stop(): Promise<void>
}

/**
 * Starts a process once, and resolves when it is ready. It has a session of its own, so that Ctrl-C
 * in a terminal reaches the gateway alone, and an IPC channel that closes when the gateway is gone.
 * Rejects with StartFailure.
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

/**
 * Lines of a JSON log keep their level and members, so that the gateway's log can be searched as
 * one.
 */
function logLine(log: Logger, name: string, line: string): void {
  const { level, event, msg = event, time: _, ...facts } = parseLogLine(line) ?? { line }
  const known = LEVELS.find((name) => name === level) ?? 'warn'
  log[known]({ process: name, ...facts }, typeof msg === 'string' ? msg : 'output')
}

/** Reads a line of a JSON log; null for others: Node.js writes warnings and stacks as they are. */
export function parseLogLine(line: string): Readonly<Record<string, unknown>> | null {
  try {
    const value: unknown = JSON.parse(line)
    return typeof value === 'object' && value !== null ? { ...value } : null
  } catch {
    return null
  }
}
