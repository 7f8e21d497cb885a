/**
 * What ends "at once" takes less: far above the pauses of a busy machine, and far below what it must
 * not wait for, which is half a minute at least.
 */
export const AT_ONCE_MS = 5_000
/** A limit that a test must not run into. */
export const FAR_OFF_MS = 60_000
