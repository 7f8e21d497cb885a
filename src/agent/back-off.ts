/** Bounds of the pause between two connections, milliseconds. */
export type BackOffBounds = { readonly minMs: number; readonly maxMs: number }

/** Pauses of the agent. The public client waits 24 s at least; a gateway that restarts is back sooner than that. */
export const BACK_OFF: BackOffBounds = { minMs: 1_000, maxMs: 60_000 }

/**
 * Gives the pause after `failures` failures in a row: anything (full jitter, so that the nodes of a gateway that came back
 * do not all come at once) up to a bound that doubles from `minMs` to `maxMs`; `random` gives 0 to below 1.
 */
export function pauseAfter(failures: number, { minMs, maxMs }: BackOffBounds, random: () => number): number {
  const bound = Math.min(maxMs, minMs * 2 ** Math.max(0, failures - 1))
  // Never nothing at all: a refusal that comes at once must not become a busy loop.
  return Math.max(minMs / 10, bound * random())
}
