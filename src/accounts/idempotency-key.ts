import { ValidationError } from '../api/errors.ts'

/** Header by which a caller names a call, so that it is made once. */
export const IDEMPOTENCY_HEADER = 'idempotency-key'

/** Longest key, characters: enough for any id, also several in one. */
export const IDEMPOTENCY_KEY_LENGTH_MAX = 255

/** Key of a call; null without the header. Throws ValidationError for anything but 1 to 255 printable ASCII characters. */
export function parseIdempotencyKey(header: string | readonly string[] | undefined): string | null {
  if (header === undefined) return null
  if (typeof header === 'string' && /^[\x21-\x7e]{1,255}$/.test(header)) return header
  const msg = `Input should be 1 to ${IDEMPOTENCY_KEY_LENGTH_MAX} printable ASCII characters without blanks`
  throw new ValidationError([{ loc: ['header', IDEMPOTENCY_HEADER], msg, type: 'value_error' }])
}
