import { z } from 'zod'
import { described } from './described.ts'
import { ValidationError } from './errors.ts'
import { type FaultPlace, faultDetails } from './fault-details.ts'
import { faultIssue } from './issues.ts'

/** Query parameters as a request carries them: a parameter that is repeated is an array. */
export type QueryParameters = Readonly<Record<string, string | readonly string[] | undefined>>

/** What `schema` makes of parameters. Throws ValidationError with all faults, each at its place. */
export function validateParameters<Output>(
  place: FaultPlace,
  schema: z.ZodType<Output>,
  input: unknown,
): Output {
  const { data, error } = schema.safeParse(input)
  if (error) throw new ValidationError(faultDetails(place, input, error.issues))
  return data
}

/** Schema of a parameter's text that is an integer from `min` to `max`, both allowed. */
export function integerText({ min, max }: { readonly min: number; readonly max: number }) {
  const schema = z
    .string()
    .check(({ value, issues }) => {
      if (!/^[+-]?\d{1,15}$/.test(value))
        issues.push({
          ...faultIssue(
            [],
            'int_parsing',
            'Input should be a valid integer, unable to parse string as an integer',
          ),
          continue: false,
        })
    })
    .transform(Number)
    .pipe(z.int().min(min).max(max))
  return described(schema, () => ({ type: 'integer', minimum: min, maximum: max }))
}

/** Schema of hex digits, of either case, with or without 0x → lower case, without; `expected` says so in words. */
export function hexText(bytesMin: number, bytesMax: number, expected: string) {
  const pattern = new RegExp(`^(0x)?([0-9a-f]{2}){${bytesMin},${bytesMax}}$`, 'i')
  return patternText(pattern, 'string_pattern_mismatch', expected).transform((text) =>
    text.toLowerCase().replace(/^0x/, ''),
  )
}

/** Schema of a text that matches; a fault has `type`, and says that `expected` was. */
export function patternText(pattern: RegExp, type: string, expected: string) {
  const schema = z.string().check(({ value, issues }) => {
    if (!pattern.test(value)) issues.push(faultIssue([], type, `Input should be ${expected}`))
  })
  return described(schema, () => ({
    type: 'string',
    pattern: anyCase(pattern),
    description: capitalize(expected),
  }))
}

/** The pattern without the flag `i`, which JSON Schema does not have. */
function anyCase({ source, ignoreCase }: RegExp): string {
  return ignoreCase ? source.replaceAll('a-f', 'a-fA-F') : source
}

function capitalize(text: string): string {
  return text.charAt(0).toUpperCase() + text.slice(1)
}
