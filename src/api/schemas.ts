import { z } from 'zod'

/** JSON Schema 2020-12, which OpenAPI 3.1 uses. */
export type JsonSchema = { readonly [keyword: string]: unknown }

const shapes = new WeakMap<z.core.$ZodType, () => JsonSchema>()

/**
 * Sets the JSON Schema of a schema whose check is code, because zod cannot describe code. Keep both
 * next to each other, with the same values. A derived schema (`.nullish()`) keeps this JSON Schema.
 * A further `.check()` loses the JSON Schema.
 */
export function described<Schema extends z.ZodType>(
  schema: Schema,
  shape: () => JsonSchema,
): Schema {
  shapes.set(schema, shape)
  return schema
}

/** Describes the values that a schema accepts. */
export function jsonSchemaOf(schema: z.ZodType): JsonSchema {
  const { $schema: _, ...json } = z.toJSONSchema(schema, {
    io: 'input',
    unrepresentable: 'any',
    override: ({ zodSchema, jsonSchema }) => {
      // Zod leaves out the default of a text that becomes a number: this default is a number.
      const { def } = zodSchema._zod
      if (def.type === 'default' && def.defaultValue !== null) jsonSchema.default = def.defaultValue
      const shape = shapes.get(zodSchema)
      if (shape === undefined) return
      for (const keyword of Object.keys(jsonSchema))
        if (keyword !== 'default') delete jsonSchema[keyword]
      Object.assign(jsonSchema, shape())
    },
  })
  return json
}

type Issues = z.core.$ZodRawIssue[]

/** Adds the faults of `value` to `issues`. `path` leads from the whole value to `value`. */
export function addIssuesOf(
  issues: Issues,
  schema: z.ZodType,
  value: unknown,
  path: readonly (string | number)[] = [],
): void {
  const { error } = schema.safeParse(value)
  if (!error) return
  for (const issue of error.issues)
    issues.push({ ...issue, path: [...path, ...issue.path], input: undefined })
}

/** `type`: see validation.ts. */
export function faultIssue(
  path: readonly (string | number)[],
  type: string,
  message: string,
): Issues[number] {
  return { code: 'custom', path: [...path], input: undefined, message, params: { type } }
}

/**
 * A text of `min` to `max` code points. Control characters are refused, because terminals must show
 * the text and databases must store it. White space alone is not accepted.
 */
export function boundedText(bounds: LengthBounds) {
  return textWithin(bounds, {
    refused: /\p{Cc}|\p{Cs}/u,
    message: 'String should have no control characters',
  })
}

/** A boundedText that may have line breaks and tabs: text that a search only compares or sends. */
export function searchedText(bounds: LengthBounds) {
  return textWithin(bounds, {
    refused: /(?!\s)\p{Cc}|\p{Cs}/u,
    message: 'String should have no control characters except line breaks and tabs',
  })
}

type LengthBounds = { readonly min: number; readonly max: number }

function textWithin(
  { min, max }: LengthBounds,
  { refused, message }: { readonly refused: RegExp; readonly message: string },
) {
  const schema = z.string().check(({ value, issues }) => {
    const length = lengthUpTo(value, max)
    if (length < min)
      issues.push(
        faultIssue([], 'string_too_short', `String should have at least ${min} characters`),
      )
    else if (length > max)
      issues.push(faultIssue([], 'string_too_long', `String should have at most ${max} characters`))
    else if (refused.test(value)) issues.push(faultIssue([], 'string_pattern_mismatch', message))
    else if (value !== '' && value.trim() === '')
      issues.push(
        faultIssue([], 'string_pattern_mismatch', 'String should not be white space alone'),
      )
  })
  return described(schema, () => ({ type: 'string', minLength: min, maxLength: max }))
}

/** Counts code points, but stops soon after `max`: a long text costs little. */
function lengthUpTo(text: string, max: number): number {
  return text.length > 2 * max ? max + 1 : [...text].length
}

/** A parameter's text that is an integer from `min` to `max`, both included. */
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

/**
 * Hex digits in upper or lower case, with or without 0x. The result is in lower case without 0x.
 * `expected` describes the digits in words.
 */
export function hexText(bytesMin: number, bytesMax: number, expected: string) {
  const pattern = new RegExp(`^(0x)?([0-9a-f]{2}){${bytesMin},${bytesMax}}$`, 'i')
  return patternText(pattern, 'string_pattern_mismatch', expected).transform((text) =>
    text.toLowerCase().replace(/^0x/, ''),
  )
}

/** Maximum length of the name of an account or a key, characters. */
export const NAME_LENGTH_MAX = 100

export function isName(text: string): boolean {
  return (
    text.length > 0 &&
    text.length <= NAME_LENGTH_MAX &&
    !/[\p{Cc}\p{Cf}\p{Cs}\p{Zl}\p{Zp}]/u.test(text)
  )
}

export const nameText = described(
  z.string().check(({ value, issues }) => {
    if (isName(value)) return
    const expected = `1 to ${NAME_LENGTH_MAX} characters without control characters`
    issues.push(faultIssue([], 'value_error', `Input should be ${expected}`))
  }),
  () => ({ type: 'string', minLength: 1, maxLength: NAME_LENGTH_MAX }),
)

/** A fault has the type `type`, and its message contains `expected`. */
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

export const uuidText = patternText(
  /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/i,
  'uuid_parsing',
  'a valid UUID',
)

/** Returns a pattern that matches upper and lower case, because JSON Schema has no flag `i`. */
function anyCase({ source, ignoreCase }: RegExp): string {
  return ignoreCase ? source.replaceAll('a-f', 'a-fA-F') : source
}

function capitalize(text: string): string {
  return text.charAt(0).toUpperCase() + text.slice(1)
}

/** SHA-256 in hex, without prefix. */
export const digest = z.string().regex(/^[0-9a-f]{64}$/)
export const hash32 = z.string().regex(/^0x[0-9a-f]{64}$/)
export const address = z.string().regex(/^0x[0-9a-f]{40}$/)
export const hexBytes = z.string().regex(/^0x([0-9a-f]{2})+$/)
export const base64 = z.base64()
export const unixSeconds = z.int().min(0)
