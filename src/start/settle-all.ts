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
  const all = Promise.all(promises) as unknown as Promise<Values>
  const settled = await Promise.allSettled([all, ...promises])
  // What waits for another part fails as that part does: that is one failure.
  const failures = new Set(
    settled.flatMap((outcome) => (outcome.status === 'rejected' ? [outcome.reason] : [])),
  )
  if (failures.size < 2) return all
  throw new StartFailure([...failures].map((failure) => messageOf(failure)).join('\n'))
}

function messageOf(failure: unknown): string {
  return failure instanceof Error ? failure.message : 'unknown fault'
}
