export type BackOffBounds = { readonly minMs: number; readonly maxMs: number }

/**
 * How a pause is computed from its upper bound. `none`: the bound itself. `half`: a random time
 * from half of the bound to the bound. `full`: a random time up to the bound, so that many clients
 * of one server do not all try again at once.
 */
type Jitter = 'none' | 'half' | 'full'

/**
 * Returns the pause after `failures` failures in a row (at least 1), milliseconds. Its upper bound
 * begins at `minMs` and doubles with each failure, up to `maxMs`. With full jitter the pause is at
 * least a tenth of `minMs`, because immediate refusals would cause a busy loop.
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

/** Keeps the bound finite after any number of failures. */
const DOUBLINGS_MAX = 40
