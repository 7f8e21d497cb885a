import { z } from 'zod'
import { described, jsonSchemaOf } from './described.ts'
import { addIssuesOf, faultIssue } from './issues.ts'

/** Schema of an integer from `min` to `max`, both allowed. 1.0 is one. Tells a text and a fraction apart. */
export function boundedInteger(bounds: { readonly min?: number; readonly max?: number }) {
  const { min = Number.MIN_SAFE_INTEGER, max = Number.MAX_SAFE_INTEGER } = bounds
  const schema = z.unknown().check(({ value, issues }) => {
    if (typeof value !== 'number') issues.push(faultIssue([], 'int_type', 'Input should be a valid integer'))
    else if (!Number.isSafeInteger(value))
      issues.push(
        faultIssue(
          [],
          'int_from_float',
          'Input should be a valid integer, without a fraction and within ±(2^53-1)',
        ),
      )
    else if (value < min)
      issues.push(faultIssue([], 'greater_than_equal', `Input should be greater than or equal to ${min}`))
    else if (value > max)
      issues.push(faultIssue([], 'less_than_equal', `Input should be less than or equal to ${max}`))
  })
  return described(schema, () => ({ type: 'integer', minimum: min, maximum: max }))
}

/** As boundedInteger, but gives a number, and tells a member that is left out from one of another type. */
export function requiredInteger(bounds: { readonly min?: number; readonly max?: number }) {
  const integer = boundedInteger(bounds)
  const schema = z
    .unknown()
    .check(({ value, issues }) => {
      if (value === undefined) issues.push(faultIssue([], 'missing', 'Field required'))
      else addIssuesOf(issues, integer, value)
    })
    .transform(Number)
  return described(schema, () => jsonSchemaOf(integer))
}
