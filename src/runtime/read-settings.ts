import type { z } from 'zod'
import { ownMembers } from '../../attestation/own-members.ts'

/** Variables by name, as a process has them. */
export type Environment = Readonly<Record<string, string | undefined>>

/**
 * The configuration of a process is wrong. Whoever started it has to mend it; nothing was started.
 */
export class ConfigurationError extends Error {
  /**
   * Every fault found, one sentence each, naming the variable and what was expected. No secrets.
   */
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
 * Gives the settings that a schema reads from variables; a variable set to the empty string counts
 * as unset. `findFaults` sees the variables that are set, as they were written, and gives what is
 * wrong with them together. Throws one ConfigurationError with every fault of both.
 */
export function readSettings<Schema extends z.ZodObject>(
  schema: Schema,
  environment: Environment,
  findFaults: (given: Environment) => readonly string[] = () => [],
): z.output<Schema> {
  const known = Object.keys(schema.shape)
  // What the environment, or an empty object, inherits is no setting.
  const own = ownMembers(environment)
  const given = ownMembers(
    Object.fromEntries(
      known
        .map((name) => [name, own[name]])
        .filter(([, value]) => value !== undefined && value !== ''),
    ),
  )
  const result = schema.safeParse(given)
  const issues = result.error?.issues ?? []
  const faults = [
    ...issues.map((issue) => `${issue.path.join('.')}: ${issue.message}`),
    ...findFaults(given),
  ]
  if (result.success && faults.length === 0) return ownMembers(result.data)
  throw new ConfigurationError(faults)
}

function bullets(lines: readonly string[]): string {
  return lines.map((line) => `  - ${line}`).join('\n')
}

/** Those of the variables that are set, to be passed on. */
export function pickVariables(
  environment: Environment,
  names: readonly string[],
): Readonly<Record<string, string>> {
  return Object.fromEntries(
    names.flatMap((name) => (environment[name] ? [[name, environment[name]]] : [])),
  )
}
