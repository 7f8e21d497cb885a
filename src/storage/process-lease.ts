import type { Logger, Opening } from '../observability/logger.ts'
import type { Database } from './database.ts'
import { createProcessesStore, type ProcessesStore } from './processes-store.ts'

/**
 * A process that was not renewed for this time counts as dead. Its reservations are released,
 * callers may repeat its calls, and its nodes count as disconnected.
 */
export const LEASE_SECONDS = 15
/** Four renewals in a row may fail before the lease ends. */
const RENEW_INTERVAL_MS = 3_000
/** This process treats its lease as ended this much earlier than other processes do. */
const LEASE_MARGIN_MS = 2_000

/** The time during which other processes treat this process as alive. */
export type ProcessLease = {
  /** Id of this process in the database. After a lost lease, the process gets a new id. */
  id(): string
  /**
   * True if other processes treat this process as alive. For a moment after a suspension of this
   * process, the value may be WRONG.
   */
  isHeld(): boolean
  /**
   * Records the process in the database, and renews the record from then on. Throws the driver's
   * error.
   */
  start(): Promise<void>
  /**
   * Calls the listener before other processes treat this process as dead, unless this process was
   * suspended.
   */
  onLost(listener: () => void): void
  /** Calls the listener when this process has a new id, and the database has it too. */
  onReplaced(listener: () => void): void
  /** Ends the lease before it expires, and releases all reservations of this process. */
  stop(): Promise<void>
}

type ProcessLeaseOptions = {
  readonly processes: ProcessesStore
  /** A new uuid. */
  readonly makeId: () => string
  readonly log: Logger
  /**
   * True if no other process can have the database open, so that all recorded processes are dead.
   */
  readonly isAlone?: boolean
  readonly leaseSeconds?: number
  readonly renewIntervalMs?: number
  readonly marginMs?: number
}

/** Renews the record of this process until `stop`. Throws the driver's error. */
export async function openProcessLease(
  database: Database,
  { log, onStarted }: Opening,
): Promise<ProcessLease> {
  const lease = createProcessLease({
    processes: createProcessesStore(database),
    makeId: () => crypto.randomUUID(),
    // Only one process can open the embedded database.
    isAlone: database.kind === 'embedded',
    log,
  })
  await lease.start()
  onStarted(() => lease.stop())
  return lease
}

/**
 * Returns a lease that is not started yet. Each renewal also cleans up the data of dead processes.
 */
export function createProcessLease(options: ProcessLeaseOptions): ProcessLease {
  return new Lease(options)
}

class Lease implements ProcessLease {
  private readonly options: Required<ProcessLeaseOptions>
  private readonly listeners: (() => void)[] = []
  private readonly replacedListeners: (() => void)[] = []
  private current: string
  private held = false
  private renewing: Promise<void> | null = null
  private renewal: NodeJS.Timeout | null = null
  private end: NodeJS.Timeout | null = null

  constructor(options: ProcessLeaseOptions) {
    const defaults = {
      isAlone: false,
      leaseSeconds: LEASE_SECONDS,
      renewIntervalMs: RENEW_INTERVAL_MS,
      marginMs: LEASE_MARGIN_MS,
    }
    this.options = { ...defaults, ...options }
    this.current = options.makeId()
  }

  id(): string {
    return this.current
  }

  isHeld(): boolean {
    return this.held
  }

  onLost(listener: () => void): void {
    this.listeners.push(listener)
  }

  onReplaced(listener: () => void): void {
    this.replacedListeners.push(listener)
  }

  async start(): Promise<void> {
    const { processes, isAlone, renewIntervalMs } = this.options
    if (isAlone) await processes.leaveAll()
    await this.enter()
    await processes.expire()
    this.renewal = setInterval(() => this.tick(), renewIntervalMs)
    this.renewal.unref()
  }

  async stop(): Promise<void> {
    for (const timer of [this.renewal, this.end]) if (timer !== null) clearTimeout(timer)
    await this.renewing
    // The renewal that was under way has set this timer again.
    if (this.end !== null) clearTimeout(this.end)
    this.held = false
    const { processes } = this.options
    await processes.leave(this.current)
    await processes.expire()
  }

  private tick(): void {
    this.renewing ??= this.renew()
      .catch((error) => this.options.log.warn({ err: error }, 'lease not renewed'))
      .finally(() => {
        this.renewing = null
      })
  }

  private async renew(): Promise<void> {
    const { processes, leaseSeconds } = this.options
    const sentAtMs = performance.now()
    if (await processes.renew(this.current, leaseSeconds)) this.hold(sentAtMs)
    else {
      this.lose()
      this.current = this.options.makeId()
      await this.enter()
      for (const listener of this.replacedListeners) listener()
    }
    await processes.expire()
  }

  private async enter(): Promise<void> {
    const sentAtMs = performance.now()
    await this.options.processes.enter(this.current, this.options.leaseSeconds)
    this.hold(sentAtMs)
  }

  /** Counts from `sentAtMs`, so that this lease ends before the lease in the database. */
  private hold(sentAtMs: number): void {
    const { leaseSeconds, marginMs } = this.options
    const leftMs = leaseSeconds * 1000 - marginMs - (performance.now() - sentAtMs)
    if (this.end !== null) clearTimeout(this.end)
    this.held = true
    this.end = setTimeout(() => this.lose(), leftMs)
    this.end.unref()
  }

  private lose(): void {
    if (!this.held) return
    this.held = false
    this.options.log.warn(
      { processId: this.current },
      'this process could not say in time that it lives',
    )
    for (const listener of this.listeners) listener()
  }
}
