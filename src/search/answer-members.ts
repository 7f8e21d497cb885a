import { EndpointError } from '../upstream/endpoint-error.ts'

/** A member of a provider's answer, or undefined for what has no such member. */
export function memberOf(value: unknown, name: string): unknown {
  const hasMember = typeof value === 'object' && value !== null && Object.hasOwn(value, name)
  return hasMember ? Reflect.get(value, name) : undefined
}

/** A list that an answer holds; an empty one when it is left out. Throws EndpointError for anything else. */
export function listOf(value: unknown, name: string): readonly unknown[] {
  const list = memberOf(value, name) ?? []
  if (Array.isArray(list)) return list
  throw new EndpointError('bad_answer', `expected a list of ${name}`)
}

/** Throws EndpointError unless an answer is an object. */
export function expectObject(answer: unknown): void {
  if (typeof answer !== 'object' || answer === null || Array.isArray(answer))
    throw new EndpointError('bad_answer', 'expected an object')
}
