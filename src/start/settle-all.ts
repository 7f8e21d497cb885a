import { StartFailure } from '../local/supervised-process.ts'

/**
 * Waits for all of what was begun, also when some of it fails, so that nothing is still on its way when the caller
 * clears up. Gives the values, or throws the one failure, or one StartFailure that tells all of them.
 */
export async function settleAll<Values extends readonly unknown[]>(
  promises: {
    readonly [Index in keyof Values]: Promise<Values[Index]>
  },
): Promise<Values> {
  const settled = await Promise.allSettled(promises as readonly Promise<unknown>[])
  const failures = settled.flatMap((outcome) => (outcome.status === 'rejected' ? [outcome.reason] : []))
  if (failures.length === 0)
    return settled.map((outcome) =>
      outcome.status === 'fulfilled' ? outcome.value : null,
    ) as unknown as Values
  if (failures.length === 1) throw failures[0]
  throw new StartFailure(
    failures.map((failure) => (failure instanceof Error ? failure.message : 'failed')).join('\n'),
  )
}
