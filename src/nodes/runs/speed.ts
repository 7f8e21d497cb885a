/** A node's speed with one model, measured by this gateway. Before the first run, both are null. */
export type Speed = {
  readonly firstTokenMs: number | null
  readonly tokensPerSecond: number | null
}

/** The gateway measures these times itself. */
export type RunTimes = {
  readonly startedAtMs: number
  readonly firstTokenAtMs: number
  readonly lastTokenAtMs: number
  /** UTF-16 units. */
  readonly laterTextLength: number
}

export const UNMEASURED: Speed = { firstTokenMs: null, tokensPerSecond: null }

/** The moving average depends mostly on the last ten runs. */
const NEWEST_WEIGHT = 0.2
/** A usual length, good enough to compare nodes. The nodes' own token counts are not trusted. */
export const TEXT_LENGTH_PER_TOKEN = 4
/** A run with less text after the first token is too short to measure. */
const TEXT_LENGTH_MIN = 32
/** Limits the speed of answers whose tokens all arrive at once. */
export const MEASURED_TOKENS_PER_SECOND_MAX = 10_000

/** For a node without runs. The values lie between those of a good and a bad node. */
export const ASSUMED_FIRST_TOKEN_MS = 1_000
const ASSUMED_TOKENS_PER_SECOND = 20
/** Nodes are compared by their time for an answer of this length. */
const EXPECTED_TOKENS = 256

export function speedAfter(before: Speed, times: RunTimes): Speed {
  const speed = tokensPerSecondOf(times)
  return {
    firstTokenMs: average(before.firstTokenMs, times.firstTokenAtMs - times.startedAtMs),
    tokensPerSecond:
      speed === null ? before.tokensPerSecond : average(before.tokensPerSecond, speed),
  }
}

/**
 * Returns the speed after a run that ended without a token, `silentMs` after its start. The first
 * token would have taken longer, so `silentMs` counts only if it is above the average.
 */
export function speedAfterSilence(before: Speed, silentMs: number): Speed {
  if (silentMs <= (before.firstTokenMs ?? ASSUMED_FIRST_TOKEN_MS)) return before
  return { ...before, firstTokenMs: average(before.firstTokenMs, silentMs) }
}

/** Images have no tokens, so the time for an image counts as the time to the first token. */
export function speedAfterDrawing(before: Speed, imageMs: number): Speed {
  return { ...before, firstTokenMs: average(before.firstTokenMs, imageMs) }
}

/** Null when the run was too short to measure. */
export function tokensPerSecondOf(times: RunTimes): number | null {
  if (times.laterTextLength < TEXT_LENGTH_MIN) return null
  const tokens = times.laterTextLength / TEXT_LENGTH_PER_TOKEN
  const seconds = (times.lastTokenAtMs - times.firstTokenAtMs) / 1000
  return seconds <= 0
    ? MEASURED_TOKENS_PER_SECOND_MAX
    : Math.min(tokens / seconds, MEASURED_TOKENS_PER_SECOND_MAX)
}

/** Returns the expected time, which grows with the share of used slots, up to double. */
export function expectedMs(
  { firstTokenMs, tokensPerSecond }: Speed,
  load: { readonly inUse: number; readonly capacity: number },
): number {
  const first = firstTokenMs ?? ASSUMED_FIRST_TOKEN_MS
  const rest = (EXPECTED_TOKENS * 1000) / (tokensPerSecond ?? ASSUMED_TOKENS_PER_SECOND)
  return (first + rest) * (1 + load.inUse / load.capacity)
}

function average(before: number | null, newest: number): number {
  return before === null ? newest : before + NEWEST_WEIGHT * (newest - before)
}
