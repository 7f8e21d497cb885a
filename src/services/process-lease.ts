import type { Logger } from '../logger.ts'
import type { ProcessesStore } from '../stores/processes.ts'

/** Without a renewal for so long a process counts as dead: what it reserved is given back, and its calls may be made again. */
export const LEASE_SECONDS = 15
/** Between renewals: four may fail before the lease is over. */
export const RENEW_INTERVAL_MS = 3_000

/** This process's place among the living. */
export type ProcessLease = {
  /** Id under which this process is known to be alive; another one after the lease was lost. */
  id(): string
  /** Enters the process, and begins to renew it. Rejects with the driver's error. */
  start(): Promise<void>
  /** Calls back, with the id that is dead now, when this process finds that it was too late to renew. */
  onLost(listener: (id: string) => void): void
  /** Leaves in good order: whatever it still had is free at once. */
  stop(): Promise<void>
}

/** Gives a lease that is not yet entered. With each renewal it also clears up after those that are dead. */
export function createProcessLease({
  processes,
  makeId,
  log,
  isAlone = false,
  renewIntervalMs = RENEW_INTERVAL_MS,
}: {
  readonly processes: ProcessesStore
  /** A new uuid. */
  readonly makeId: () => string
  readonly log: Logger
  /** Whether no other process can have the database open, so that whoever is in it is dead. */
  readonly isAlone?: boolean
  readonly renewIntervalMs?: number
}): ProcessLease {
  let id = makeId()
  let running: Promise<void> | null = null
  let timer: NodeJS.Timeout | null = null
  const listeners: ((id: string) => void)[] = []

  async function renew(): Promise<void> {
    if (!(await processes.renew(id, LEASE_SECONDS))) {
      const lost = id
      id = makeId()
      log.warn({ processId: lost }, 'this process was too late to say that it lives')
      for (const listener of listeners) listener(lost)
      await processes.enter(id, LEASE_SECONDS)
    }
    await processes.expire()
  }

  const tick = () => {
    running ??= renew()
      .catch((error) => log.warn({ err: error }, 'lease not renewed'))
      .finally(() => {
        running = null
      })
  }

  return {
    id: () => id,
    async start() {
      if (isAlone) await processes.leaveAll()
      await processes.enter(id, LEASE_SECONDS)
      await processes.expire()
      timer = setInterval(tick, renewIntervalMs)
      timer.unref()
    },
    onLost: (listener) => void listeners.push(listener),
    async stop() {
      if (timer !== null) clearInterval(timer)
      await running
      await processes.leave(id).then(() => processes.expire())
    },
  }
}
