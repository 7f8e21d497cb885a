import type { z } from 'zod'

/** Variables by name, as in process.env. */
export type Environment = Readonly<Record<string, string | undefined>>

/** The configuration of a process is wrong. Whoever started it has to mend it; nothing was started. */
export class ConfigurationError extends Error {
  /** Every fault found, one sentence each, naming the variable and what was expected. No secrets. */
  readonly faults: readonly string[]

  constructor(faults: readonly string[]) {
    super(
      `The configuration has ${faults.length === 1 ? 'a fault' : `${faults.length} faults`}:\n${bullets(faults)}`,
    )
    this.name = 'ConfigurationError'
    this.faults = faults
  }
}

/**
 * Gives the settings that a schema reads from variables; a variable set to the empty string counts as unset.
 * Throws one ConfigurationError with every fault of every variable.
 */
export function readSettings<Schema extends z.ZodObject>(
  schema: Schema,
  environment: Environment,
): z.output<Schema> {
  const known = Object.keys(schema.shape)
  const given = Object.fromEntries(
    known.map((name) => [name, environment[name]]).filter(([, value]) => value !== undefined && value !== ''),
  )
  const result = schema.safeParse(given)
  if (result.success) return result.data
  throw new ConfigurationError(
    result.error.issues.map((issue) => [issue.path.join('.'), issue.message].filter(Boolean).join(': ')),
  )
}

function bullets(lines: readonly string[]): string {
  return lines.map((line) => `  - ${line}`).join('\n')
}
