/** Figures since the start of this process. */
export type CommitFigures = {
  readonly commits: number
  readonly records: number
  /** Commits that another gateway made first. */
  readonly races: number
  readonly failures: number
  /** Sizes are numbers of records. */
  readonly lastBatch: number
  readonly largestBatch: number
  /**
   * Measured with performance.now(). The next member is the time from the enclave's reply until the
   * commit was durable.
   */
  readonly lastCommitAtMs: number | null
  readonly lastCommitMs: number | null
}

export const NO_FIGURES: CommitFigures = {
  commits: 0,
  records: 0,
  races: 0,
  failures: 0,
  lastBatch: 0,
  largestBatch: 0,
  lastCommitAtMs: null,
  lastCommitMs: null,
}

export function countCommit(
  figures: CommitFigures,
  { count, startedAtMs }: { readonly count: number; readonly startedAtMs: number },
): CommitFigures {
  const lastCommitAtMs = performance.now()
  return {
    ...figures,
    commits: figures.commits + 1,
    records: figures.records + count,
    lastBatch: count,
    largestBatch: Math.max(figures.largestBatch, count),
    lastCommitAtMs,
    lastCommitMs: lastCommitAtMs - startedAtMs,
  }
}
