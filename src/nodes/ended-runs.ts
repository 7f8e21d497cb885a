/** Ids of runs that ended without their final frame, which may still come. */
export type EndedRuns = {
  add(id: string): void
  /** Whether it is one of them; from now on it is not. */
  take(id: string): boolean
}

/** Remembers the newest `countMax`. */
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
