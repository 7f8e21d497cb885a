import type { z } from 'zod'

type Issues = z.core.$ZodRawIssue[]

/** Adds to `issues` what `schema` has against `value`, which stands at `path` below the value being checked. */
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

/** An issue of our own: where, its stable type (see fault-details.ts), in words. */
export function faultIssue(path: readonly string[], type: string, message: string): Issues[number] {
  return { code: 'custom', path: [...path], input: undefined, message, params: { type } }
}

/** Whether an optional member is unset: left out, or null. */
export function isUnset(value: unknown): value is null | undefined {
  return value === undefined || value === null
}
