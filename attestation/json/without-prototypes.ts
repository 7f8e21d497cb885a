import { isJsonArray, type Json, type JsonObject } from './value.ts'

/**
 * The object without members called `__proto__`, at any depth: clients that assign members one by
 * one would set a prototype. Returns `object` itself if nothing changes.
 */
export function withoutPrototypes(object: JsonObject): JsonObject {
  return hasPrototypes(object) ? (strip(object) as JsonObject) : object
}

function strip(value: Json): Json {
  if (isJsonArray(value)) return value.map(strip)
  if (typeof value !== 'object' || value === null) return value
  const kept = Object.entries(value).filter(([name]) => name !== '__proto__')
  return Object.fromEntries(kept.map(([name, member]) => [name, strip(member)]))
}

/**
 * True if a member is called `__proto__`. Allocates no memory, because such members are very rare.
 */
function hasPrototypes(value: Json | undefined): boolean {
  if (typeof value !== 'object' || value === null) return false
  if (isJsonArray(value)) {
    for (const item of value) if (hasPrototypes(item)) return true
    return false
  }
  if (Object.hasOwn(value, '__proto__')) return true
  for (const name in value) if (hasPrototypes(value[name])) return true
  return false
}
