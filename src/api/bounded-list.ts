import { z } from 'zod'
import { described, jsonSchemaOf } from './described.ts'
import { FAULTS_MAX } from './fault-details.ts'
import { addIssuesOf } from './issues.ts'

/**
 * Schema of an array whose items satisfy `item`. Unlike z.array it stops after FAULTS_MAX faults: 10 MiB of `1,1,1,…`
 * would otherwise become millions of issues.
 */
export function boundedList(item: z.ZodType, bounds: { readonly min?: number; readonly max?: number } = {}) {
  const { min = 0, max = Number.MAX_SAFE_INTEGER } = bounds
  const schema = z
    .array(z.unknown())
    .min(min)
    .max(max)
    .check(({ issues, value }) => addItemIssues(issues, item, value))
  return described(schema, () => ({
    type: 'array',
    items: jsonSchemaOf(item),
    ...(min > 0 ? { minItems: min } : {}),
    ...(bounds.max === undefined ? {} : { maxItems: max }),
  }))
}

/** Adds the issues of each item of `values`, until there are enough. */
export function addItemIssues(
  issues: z.core.$ZodRawIssue[],
  item: z.ZodType,
  values: readonly unknown[],
): void {
  for (let index = 0; index < values.length && issues.length < FAULTS_MAX; index++)
    addIssuesOf(issues, item, values[index], [index])
}
