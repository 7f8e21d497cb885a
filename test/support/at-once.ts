/**
 * Limit for what ends "at once": far above the pauses of a busy machine, and far below the half
 * minute or more that it must not wait for.
 */
export const AT_ONCE_MS = 5_000
/** A limit that a test must not run into. */
export const FAR_OFF_MS = 60_000
