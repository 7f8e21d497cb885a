import { isJsonArray, isJsonObject, type Json, setMember } from './json/value.ts'

/** A JSON value that chunks are merged into: objects as maps and arrays of its own, both changed in place. */
export type MergedValue = null | boolean | number | string | Json[] | MergedMembers

/** Members of an object that chunks are merged into. */
export type MergedMembers = Map<string, MergedValue>

/**
 * Adds one chunk's member: null adds nothing, strings and arrays are appended, objects merged member by member by
 * these same rules, and anything else, also a value of another type than before, replaces what was there.
 */
export function mergeMember(members: MergedMembers, name: string, value: Json): void {
  if (value !== null) members.set(name, mergeValue(members.get(name), value))
}

/** As mergeMember, but a string replaces the one before unless it is empty: for names and ids, sent whole. */
export function replaceMember(members: MergedMembers, name: string, value: Json): void {
  if (typeof value !== 'string') mergeMember(members, name, value)
  else if (value !== '' || !members.has(name)) members.set(name, value)
}

/** `known` with `value` added, by the rules of mergeMember. */
export function mergeValue(known: MergedValue | undefined, value: Json): MergedValue {
  if (typeof value === 'string') return typeof known === 'string' ? known + value : value
  if (isJsonArray(value)) return appendItems(Array.isArray(known) ? known : [], value)
  if (!isJsonObject(value)) return value
  const members = known instanceof Map ? known : new Map<string, MergedValue>()
  for (const [name, member] of Object.entries(value)) mergeMember(members, name, member)
  return members
}

/** What was merged, as JSON of its own: adding more chunks does not change it. */
export function finishMerged(value: MergedValue): Json {
  if (value instanceof Map) return finishMembers(value)
  return Array.isArray(value) ? [...value] : value
}

/** The same for members. */
export function finishMembers(members: MergedMembers): Record<string, Json> {
  const object: Record<string, Json> = {}
  for (const [name, value] of members) setMember(object, name, finishMerged(value))
  return object
}

/** Adds items one by one: spreading an attacker's long array into arguments would overflow the stack. */
function appendItems(known: Json[], items: readonly Json[]): Json[] {
  for (const item of items) known.push(item)
  return known
}
