import { z } from 'zod'
import { FAULTS_MAX } from './fault-details.ts'
import { addIssuesOf } from './issues.ts'

/**
 * Schema of an array whose items satisfy `item`. Unlike z.array it stops after FAULTS_MAX faults: 10 MiB of `1,1,1,…`
 * would otherwise become millions of issues.
 */
export function boundedList(item: z.ZodType, bounds: { readonly min?: number; readonly max?: number } = {}) {
  return z
    .array(z.unknown())
    .min(bounds.min ?? 0)
    .max(bounds.max ?? Number.MAX_SAFE_INTEGER)
    .check(({ issues, value }) => addItemIssues(issues, item, value))
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
