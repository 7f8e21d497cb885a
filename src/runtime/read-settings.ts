import type { z } from 'zod'
import { ownMembers } from '#attestation/own-members.ts'
import { isConfidential } from './fields.ts'
import { readSecretFile } from './secret-file.ts'

export type Environment = Readonly<Record<string, string | undefined>>

/** The configuration of a process is wrong. The process has started nothing. */
export class ConfigurationError extends Error {
  /** One sentence per fault, without secrets. */
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
 * Reads the settings of a schema. An empty variable counts as unset. `NAME_FILE` may name a file
 * that contains a secret. `findFaults` gets the unchanged text of all variables that are set, and
 * returns faults of their combination. `warn` gets sentences about settings that work but should be
 * corrected. Throws one ConfigurationError with all faults.
 */
export function readSettings<Schema extends z.ZodObject>(
  schema: Schema,
  environment: Environment,
  findFaults: (given: Environment) => readonly string[] = () => [],
  warn: (sentence: string) => void = warnOnStandardError,
): z.output<Schema> {
  const own = ownMembers(environment)
  const isSet = (name: string) => own[name] !== undefined && own[name] !== ''
  const values: Record<string, string> = {}
  /** A variable whose file has a fault counts neither as set nor as unset. */
  const fileFaults = new Map<string, string>()
  for (const [name, field] of Object.entries(schema.shape)) {
    const file = `${name}_FILE`
    const hasFile = isConfidential(field) && isSet(file)
    if (isSet(name) && hasFile) fileFaults.set(name, `${name}: unexpected together with ${file}`)
    else if (isSet(name)) values[name] = own[name] ?? ''
    else if (hasFile) {
      const read = readSecretFile(own[file] ?? '')
      if (read.kind === 'fault') fileFaults.set(name, `${file}: ${read.fault}`)
      else {
        values[name] = read.text
        if (read.isOpen) warn(`${file}: expected a file that others cannot read (mode 600 or 640)`)
      }
    }
  }
  const given = ownMembers(values)
  const result = schema.safeParse(given)
  const issues = result.error?.issues ?? []
  const faults = [
    ...fileFaults.values(),
    ...issues
      .filter((issue) => !fileFaults.has(String(issue.path[0])))
      .map((issue) => `${issue.path.join('.')}: ${issue.message}`),
    ...(fileFaults.size > 0 ? [] : findFaults(given)),
  ]
  if (result.success && faults.length === 0) return ownMembers(result.data)
  throw new ConfigurationError(faults)
}

function warnOnStandardError(sentence: string): void {
  console.error(`warning: ${sentence}`)
}

function bullets(lines: readonly string[]): string {
  return lines.map((line) => `  - ${line}`).join('\n')
}

/** Returns the variables in `names` that are set, and those of their `NAME_FILE` variables. */
export function pickVariables(
  environment: Environment,
  names: readonly string[],
): Readonly<Record<string, string>> {
  return Object.fromEntries(
    names
      .flatMap((name) => [name, `${name}_FILE`])
      .flatMap((name) => (environment[name] ? [[name, environment[name]]] : [])),
  )
}
