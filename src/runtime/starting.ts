/** A part could not be started. The message, for the operator, names the part and its error. */
export class StartFailure extends Error {
  override readonly name = 'StartFailure'
}

/** Called by a started part with its stop function. The part that started last stops first. */
export type OnStarted = (stop: () => Promise<void>) => void

/**
 * Waits for all parts, even if some fail, because the caller must not clean up during a start.
 * Throws the failure of one part, or one StartFailure that contains the failures of several.
 */
export async function settleAll<Values extends readonly unknown[]>(
  promises: {
    readonly [Index in keyof Values]: Promise<Values[Index]>
  },
): Promise<Values> {
  const all = Promise.all(promises) as unknown as Promise<Values>
  const settled = await Promise.allSettled([all, ...promises])
  // If a part fails, the parts that wait for it throw the same error, which counts only once.
  const failures = new Set(
    settled.flatMap((outcome) => (outcome.status === 'rejected' ? [outcome.reason] : [])),
  )
  if (failures.size < 2) return all
  throw new StartFailure([...failures].map((failure) => messageOf(failure)).join('\n'))
}

function messageOf(failure: unknown): string {
  return failure instanceof Error ? failure.message : 'unknown fault'
}

/** Returns the system's code of an error, such as `EADDRINUSE`. Null if the error has no code. */
export function systemCodeOf(error: unknown): string | null {
  return error instanceof Error && 'code' in error ? String(error.code) : null
}

/**
 * Loads an optional package (optionalDependencies in package.json). If it is not installed, rejects
 * with a StartFailure whose message begins with `purpose` and ends with `instead`.
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
