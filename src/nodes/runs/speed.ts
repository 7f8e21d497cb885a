/** A node's speed with one model, as this gateway measured it. Null before the first run. */
export type Speed = {
  readonly firstTokenMs: number | null
  readonly tokensPerSecond: number | null
}

/** Measurements of one run, made by the gateway. */
export type RunTimes = {
  readonly startedAtMs: number
  readonly firstTokenAtMs: number
  readonly lastTokenAtMs: number
  /** Length of the text after the first token, UTF-16 units. */
  readonly laterTextLength: number
}

export const UNMEASURED: Speed = { firstTokenMs: null, tokensPerSecond: null }

/** Weight of the newest run in the moving average, which depends mostly on the last ten runs. */
const NEWEST_WEIGHT = 0.2
/**
 * Usual length of a token of text. The estimate is good enough to compare nodes, whose own token
 * counts are not trusted.
 */
export const TEXT_LENGTH_PER_TOKEN = 4
/** A run with less text than this after the first token is too short to measure. */
const TEXT_LENGTH_MIN = 32
/**
 * Upper limit of a measured speed. An answer in one burst would otherwise count as infinitely fast.
 */
export const MEASURED_TOKENS_PER_SECOND_MAX = 10_000

/** Assumed values for a node without runs: between the values of a good and of a bad node. */
export const ASSUMED_FIRST_TOKEN_MS = 1_000
const ASSUMED_TOKENS_PER_SECOND = 20
/** Nodes are compared by their time for an answer of this length. */
const EXPECTED_TOKENS = 256

/** Returns the speed after one more run. */
export function speedAfter(before: Speed, times: RunTimes): Speed {
  const speed = tokensPerSecondOf(times)
  return {
    firstTokenMs: average(before.firstTokenMs, times.firstTokenAtMs - times.startedAtMs),
    tokensPerSecond:
      speed === null ? before.tokensPerSecond : average(before.tokensPerSecond, speed),
  }
}

/**
 * Returns the speed after a run that had no token within `silentMs`, because its caller left or the
 * run failed. The first token would have taken even longer.
 */
export function speedAfterSilence(before: Speed, silentMs: number): Speed {
  if (silentMs <= (before.firstTokenMs ?? ASSUMED_FIRST_TOKEN_MS)) return before
  return { ...before, firstTokenMs: average(before.firstTokenMs, silentMs) }
}

/**
 * Returns the speed after a run that took `imageMs` for each image. Without tokens, this time
 * counts as the time to the first token.
 */
export function speedAfterDrawing(before: Speed, imageMs: number): Speed {
  return { ...before, firstTokenMs: average(before.firstTokenMs, imageMs) }
}

/** Returns the tokens per second of one run. Null when the run was too short to measure. */
export function tokensPerSecondOf(times: RunTimes): number | null {
  if (times.laterTextLength < TEXT_LENGTH_MIN) return null
  const tokens = times.laterTextLength / TEXT_LENGTH_PER_TOKEN
  const seconds = (times.lastTokenAtMs - times.firstTokenAtMs) / 1000
  return seconds <= 0
    ? MEASURED_TOKENS_PER_SECOND_MAX
    : Math.min(tokens / seconds, MEASURED_TOKENS_PER_SECOND_MAX)
}

/**
 * Returns the expected time of one more answer, milliseconds. It grows with the share of used
 * slots, and is double when all are used.
 */
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
