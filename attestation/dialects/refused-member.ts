import { isJsonArray, isJsonObject, type Json, type JsonObject, memberOf } from '../json/value.ts'

/** A member of a request that hides what was asked, and where it is. */
export type RefusedMember = { readonly path: readonly (string | number)[]; readonly why: string }

/** Gives the first of these members of `object` that is neither left out nor null. */
export function findGiven(
  object: JsonObject,
  reasons: ReadonlyMap<string, string>,
): RefusedMember | null {
  for (const [name, why] of reasons)
    if ((memberOf(object, name) ?? null) !== null) return { path: [name], why }
  return null
}

/**
 * Gives the first object in `value`, at any depth, of which `whyRefused` says that it refers to
 * content that is kept elsewhere. What a tool is given (`input`) is not looked into.
 */
export function findReference(
  value: Json,
  path: readonly (string | number)[],
  whyRefused: (object: JsonObject) => string | null,
): RefusedMember | null {
  if (isJsonArray(value)) {
    for (const [at, item] of value.entries()) {
      const found = findReference(item, [...path, at], whyRefused)
      if (found !== null) return found
    }
    return null
  }
  if (!isJsonObject(value)) return null
  const why = whyRefused(value)
  if (why !== null) return { path, why }
  for (const [name, member] of Object.entries(value)) {
    if (name === 'input') continue
    const found = findReference(member, [...path, name], whyRefused)
    if (found !== null) return found
  }
  return null
}
