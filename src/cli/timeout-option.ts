import { InvalidArgumentError } from 'commander'

/** Longest that anything may be waited for: an hour, and far within what a timer can hold. */
const TIMEOUT_SECONDS_MAX = 3600

/** Gives the seconds of a `--timeout` option. Throws InvalidArgumentError. */
export function parseSeconds(text: string): number {
  const seconds = /^\d{1,5}$/.test(text) ? Number(text) : 0
  if (seconds >= 1 && seconds <= TIMEOUT_SECONDS_MAX) return seconds
  throw new InvalidArgumentError(`expected a whole number of seconds from 1 to ${TIMEOUT_SECONDS_MAX}`)
}
