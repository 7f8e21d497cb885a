import { isJsonArray, isJsonObject, type Json, type JsonObject, memberOf } from '../json/value.ts'
import { isEmpty } from './dialect.ts'

/**
 * Members that are not searched. A tool's schemas and data do not refer to stored content, and an
 * earlier answer only cites files.
 */
const UNSEARCHED = 'parameters input_schema schema arguments env annotations results'.split(' ')

/** A member of a request that hides a part of the prompt, with its path and the reason. */
export type RefusedMember = { readonly path: readonly (string | number)[]; readonly why: string }

/** Returns the first member of `object` that is in `reasons` and is neither empty nor false. */
export function findGiven(
  object: JsonObject,
  reasons: ReadonlyMap<string, string>,
): RefusedMember | null {
  for (const [name, why] of reasons)
    if (!isEmpty(memberOf(object, name)) && object[name] !== false) return { path: [name], why }
  return null
}

/**
 * Returns the first object in `value`, at any depth, for which `whyRefused` returns a reason: the
 * object refers to content stored elsewhere. Does not search the `input` of a tool or the
 * environment of a shell call.
 */
export function findReference(
  value: Json,
  path: readonly (string | number)[],
  whyRefused: (object: JsonObject) => string | null,
): RefusedMember | null {
  const found = searchIn(value, whyRefused)
  return found && { path: [...path, ...found.path], why: found.why }
}

/**
 * Builds the path only after a match, because a path for each value would take far longer than the
 * search.
 */
function searchIn(
  value: Json,
  whyRefused: (object: JsonObject) => string | null,
): RefusedMember | null {
  if (isJsonArray(value)) {
    for (const [at, item] of value.entries()) {
      const found = searchIn(item, whyRefused)
      if (found !== null) return { path: [at, ...found.path], why: found.why }
    }
    return null
  }
  if (!isJsonObject(value)) return null
  const why = whyRefused(value)
  if (why !== null) return { path: [], why }
  for (const [name, member] of Object.entries(value)) {
    if (UNSEARCHED.includes(name) || (name === 'input' && value.type !== undefined)) continue
    if (name === 'environment' && value.type === 'shell_call') continue
    const found = searchIn(member, whyRefused)
    if (found !== null) return { path: [name, ...found.path], why: found.why }
  }
  return null
}
