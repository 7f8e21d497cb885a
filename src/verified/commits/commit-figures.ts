/** What a committer has done since this process started. */
export type CommitFigures = {
  readonly commits: number
  readonly records: number
  /** Number of commits that another gateway made first. */
  readonly races: number
  readonly failures: number
  /** Number of records in the last commit, and in the largest commit. */
  readonly lastBatch: number
  readonly largestBatch: number
  /**
   * When the last commit was durable, performance.now(). The next member is the time from the
   * enclave's reply until then.
   */
  readonly lastCommitAtMs: number | null
  readonly lastCommitMs: number | null
}

/** The figures before the first commit. */
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

/** The figures after a commit of `count` records that ended now. */
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
