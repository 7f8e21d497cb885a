/** Ids of runs that ended without their final frame. This frame may still arrive. */
type EndedRuns = {
  add(id: string): void
  /** Whether the id is remembered. If so, it is removed. */
  take(id: string): boolean
}

/** Remembers the newest `countMax` ids. */
export function createEndedRuns(countMax: number): EndedRuns {
  const ended = new Set<string>()
  return {
    add(id) {
      ended.add(id)
      const [oldest] = ended
      if (ended.size > countMax && oldest !== undefined) ended.delete(oldest)
    },
    take: (id) => ended.delete(id),
  }
}

/** Limits the frames that a node sends without being asked. */
export type StrayBudget = {
  /** Takes the cost of such a frame: 1, plus 1 per KiB. False when too little is left. */
  spend(bytes: number, nowMs: number): boolean
}

/**
 * A budget of `burst`, refilled by `perSecond`. A correct node hardly uses it: late frames of runs
 * do not count.
 */
export function createStrayBudget(limits: {
  readonly strayBurst: number
  readonly strayPerSecond: number
}): StrayBudget {
  let left = limits.strayBurst
  let filledAtMs = 0
  return {
    spend(bytes, nowMs) {
      if (filledAtMs > 0)
        left = Math.min(
          limits.strayBurst,
          left + ((nowMs - filledAtMs) * limits.strayPerSecond) / 1000,
        )
      filledAtMs = nowMs
      left -= 1 + bytes / 1024
      return left >= 0
    },
  }
}
