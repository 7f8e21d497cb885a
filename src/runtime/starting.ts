/**
 * A part could not be started. The message names the part and what it said; it is for whoever
 * started this process.
 */
export class StartFailure extends Error {
  override readonly name = 'StartFailure'
}

/**
 * Waits for all of what was begun, also when some of it fails, so that nothing is still on its way
 * when the caller clears up. Gives the values, or throws the one failure, or one StartFailure that
 * tells all of them.
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

/** The system's code of an error, such as `EADDRINUSE`, for a message; null where it has none. */
export function systemCodeOf(error: unknown): string | null {
  return error instanceof Error && 'code' in error ? String(error.code) : null
}

/**
 * Gives an optional package (optionalDependencies of package.json), loaded by `load`. Rejects with
 * StartFailure, which says what to install, when it is not there; `purpose` begins that sentence,
 * `instead` ends it.
 */
export async function loadOptional<Module>(
  name: string,
  load: () => Promise<Module> | Module,
  { purpose, instead }: { readonly purpose: string; readonly instead: string },
): Promise<Module> {
  try {
    return await load()
  } catch (error) {
    const code = systemCodeOf(error)
    const isMissing = code === 'ERR_MODULE_NOT_FOUND' || code === 'MODULE_NOT_FOUND'
    if (!isMissing || !String(error).includes(name)) throw error
    throw new StartFailure(
      `${purpose} needs the package ${name}, which is not installed: run npm install without --omit=optional, or ${instead}`,
      { cause: error },
    )
  }
}
