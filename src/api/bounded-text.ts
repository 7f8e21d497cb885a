import { z } from 'zod'
import { described } from './described.ts'
import { faultIssue } from './issues.ts'

/** Not bounded by the interface: a model id that is longer than any is an attack on the logs. */
export const MODEL_LENGTH_MAX = 512

/**
 * Schema of a text of `min` to `max` characters (code points), without control characters: a name that is shown on
 * terminals, and that a database can store. One that has characters must have one that is no white space.
 */
export function boundedText({ min, max }: { readonly min: number; readonly max: number }) {
  const schema = z.string().check(({ value, issues }) => {
    const length = lengthUpTo(value, max)
    if (length < min)
      issues.push(faultIssue([], 'string_too_short', `String should have at least ${min} characters`))
    else if (length > max)
      issues.push(faultIssue([], 'string_too_long', `String should have at most ${max} characters`))
    else if (/\p{Cc}|\p{Cs}/u.test(value))
      issues.push(faultIssue([], 'string_pattern_mismatch', 'String should have no control characters'))
    else if (value !== '' && value.trim() === '')
      issues.push(faultIssue([], 'string_pattern_mismatch', 'String should not be white space alone'))
  })
  return described(schema, () => ({ type: 'string', minLength: min, maxLength: max }))
}

/** Code points of a text, or more than `max` when there are more: counted no further than need be. */
function lengthUpTo(text: string, max: number): number {
  return text.length > 2 * max ? max + 1 : [...text].length
}
