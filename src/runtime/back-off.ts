/** Bounds of the pauses between two tries, milliseconds. */
export type BackOffBounds = { readonly minMs: number; readonly maxMs: number }

/**
 * How much of the pause is random. `none`: the pause is the bound. `half`: from half of the bound
 * up to the bound. `full`: from near zero to the bound, so that many clients of one server do not
 * all return at once.
 */
type Jitter = 'none' | 'half' | 'full'

/**
 * Returns the pause, in milliseconds, after `failures` failures in a row (at least 1). Its bound
 * begins at `minMs` and doubles with each failure, up to `maxMs`. With full jitter the pause is at
 * least a tenth of `minMs`, because immediate refusals would cause a busy loop. `random` returns a
 * number from 0 to below 1.
 */
export function backOffMs(
  failures: number,
  { minMs, maxMs }: BackOffBounds,
  { jitter, random = Math.random }: { readonly jitter: Jitter; readonly random?: () => number },
): number {
  const boundMs = Math.min(maxMs, minMs * 2 ** Math.min(Math.max(0, failures - 1), DOUBLINGS_MAX))
  switch (jitter) {
    case 'none':
      return boundMs
    case 'half':
      return boundMs * (1 - random() / 2)
    case 'full':
      return Math.max(minMs / 10, boundMs * random())
  }
}

/** Limits the number of doublings, so that the bound stays finite after any number of failures. */
const DOUBLINGS_MAX = 40
