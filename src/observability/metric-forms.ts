export const METRICS_PREFIX = 'affidavit_'

/** Seconds, from a cached answer to a long generation. */
export const DURATION_BUCKETS = [
  0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300,
]

/** Only a stream can end with an error event. */
export type CallEnd = 'whole' | 'cut' | 'error'
