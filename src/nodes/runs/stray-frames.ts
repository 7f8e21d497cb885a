/** Remembers runs that ended without their final frame, which may still arrive. */
type EndedRuns = {
  add(id: string): void
  /** Forgets the id. True if it was remembered. */
  take(id: string): boolean
}

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

/** Limits the frames that a node sends unasked. */
export type StrayBudget = {
  /** A frame costs 1, plus 1 per KiB. False when the budget is too small. */
  spend(bytes: number, nowMs: number): boolean
}

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
