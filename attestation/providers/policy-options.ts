import { PolicyError } from '../nitro/policy.ts'
import { hasOwnMembersAlone, ownMembers } from '../own-members.ts'

/**
 * Returns the policy's own members. Refuses a member that is not in `names` or has no value. Throws
 * PolicyError. `what` names the policy in the error message.
 */
export function optionsOf<Policy extends object>(
  given: Policy,
  names: Readonly<Record<keyof Policy, true>>,
  what: string,
): Policy {
  demand(hasOwnMembersAlone(given), `${what}: an object with its own members`)
  for (const [name, value] of Object.entries(given)) {
    demand(Object.hasOwn(names, name), `no option ${name} in ${what}`)
    demand(value !== undefined && value !== null, `${name} to have a value, or to be left out`)
  }
  return ownMembers(given)
}

/** Throws PolicyError unless `holds`. */
export function demand(holds: boolean, expected: string): asserts holds {
  if (!holds) throw new PolicyError(`expected ${expected}`)
}

/** False for a list with holes, unless `test` accepts undefined. */
export function isListOf(
  value: unknown,
  test: (item: unknown) => boolean,
): value is readonly unknown[] {
  return Array.isArray(value) && Array.from(value).every(test)
}

export function isBytesOf(value: unknown, length: number): value is Uint8Array {
  return value instanceof Uint8Array && value.length === length
}

/** Unix milliseconds. Throws PolicyError for an invalid Date. */
export function judgedAt(at: Date): number {
  const atMs = at instanceof Date ? at.getTime() : Number.NaN
  demand(!Number.isNaN(atMs), 'a valid time as Date')
  return atMs
}
