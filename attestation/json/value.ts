/** Any JSON value (RFC 8259) after parsing. Numbers are IEEE doubles. */
export type Json = null | boolean | number | string | readonly Json[] | JsonObject

/** A JSON object. Every member is an own property, even a member called `__proto__`. */
export type JsonObject = { readonly [name: string]: Json }

export function isJsonObject(value: Json | undefined): value is JsonObject {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
}

/** `Array.isArray` alone does not narrow readonly arrays. */
export function isJsonArray(value: Json | undefined): value is readonly Json[] {
  return Array.isArray(value)
}

/** True if `value` is a whole number from 0 to 2^53-1. */
export function isCount(value: unknown): value is number {
  return Number.isSafeInteger(value) && Number(value) >= 0
}

/** Inherited members are not read. */
export function memberOf(object: JsonObject, name: string): Json | undefined {
  return Object.hasOwn(object, name) ? object[name] : undefined
}

/** Reads only own members. Undefined if a member on the path is missing. */
export function memberAt(value: Json | undefined, ...path: readonly string[]): Json | undefined {
  return path.reduce<Json | undefined>(
    (at, name) => (isJsonObject(at) ? memberOf(at, name) : undefined),
    value,
  )
}

export function hasMembers(object: JsonObject): boolean {
  for (const _ in object) return true
  return false
}

export function hasExactMembers<Name extends string>(
  object: JsonObject,
  names: readonly Name[],
): object is JsonObject & Readonly<Record<Name, Json>> {
  return (
    Object.keys(object).length === names.length &&
    names.every((name) => Object.hasOwn(object, name))
  )
}

/**
 * Sets a member of a new object, under any name. A plain assignment to `__proto__` would replace
 * the object's prototype.
 */
export function setMember<Value>(object: Record<string, Value>, name: string, value: Value): void {
  if (name === '__proto__')
    Object.defineProperty(object, name, {
      value,
      writable: true,
      enumerable: true,
      configurable: true,
    })
  else object[name] = value
}

export function filterMembers(object: JsonObject, keeps: (name: string, value: Json) => boolean) {
  const kept: Record<string, Json> = {}
  for (const [name, value] of Object.entries(object))
    if (keeps(name, value)) setMember(kept, name, value)
  return kept
}
