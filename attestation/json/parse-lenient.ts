import { JsonError } from './json-error.ts'
import { ANSWER_SIZE_MAX, isWithinSize, measureJson } from './json-size.ts'
import { JSON_DEPTH_MAX } from './parse-strict.ts'
import { isJsonArray, type Json, type JsonObject, setMember } from './value.ts'

/**
 * Parses a provider's answer and changes it so that canonical JSON can represent it. Bytes that are
 * not UTF-8 and lone surrogates become U+FFFD. A number becomes the nearest finite double. Of
 * members with the same name, the last counts. A byte order mark is dropped. `__proto__` is a
 * normal member. Throws JsonError `syntax` (path [], offset 0), `too_many` over ANSWER_SIZE_MAX,
 * before any value is created, and `too_deep` over JSON_DEPTH_MAX. Do not use it for data that were
 * already hashed or signed.
 */
export function parseLenientJson(input: Uint8Array | string): Json {
  return makeWellFormed(parseBounded(input))
}

/**
 * Parses as parseLenientJson does, but keeps infinite numbers, and lone surrogates from escapes.
 */
export function parseUnsettled(input: Uint8Array | string): Json {
  const value = parseBounded(input)
  checkDepth(value, 0)
  return value
}

function parseBounded(input: Uint8Array | string): Json {
  // A short text cannot have too many values: each value takes at least one byte.
  const isShort = input.length <= ANSWER_SIZE_MAX.containers
  if (!isShort && !isWithinSize(measureJson(input), ANSWER_SIZE_MAX))
    throw new JsonError('too_many', 'expected fewer arrays, objects, members and items', {
      path: [],
      offset: 0,
    })
  const text = (typeof input === 'string' ? input : decoder.decode(input)).toWellFormed()
  return parse(text)
}

const decoder = new TextDecoder('utf-8')

function parse(text: string): Json {
  try {
    return JSON.parse(text)
  } catch {
    throw new JsonError('syntax', 'expected JSON', { path: [], offset: 0 })
  }
}

/**
 * Replaces lone surrogates by U+FFFD and makes numbers finite. Returns `value` itself if nothing
 * changes. Throws JsonError `too_deep` over JSON_DEPTH_MAX.
 */
export function makeWellFormed(value: Json): Json {
  return normalize(value, 0)
}

function normalize(value: Json, depth: number): Json {
  if (typeof value === 'string') return value.toWellFormed()
  if (typeof value === 'number')
    return Number.isFinite(value) ? value : Math.sign(value) * Number.MAX_VALUE
  if (typeof value !== 'object' || value === null) return value
  if (depth >= JSON_DEPTH_MAX) throw tooDeep()
  return isJsonArray(value) ? normalizeArray(value, depth + 1) : normalizeObject(value, depth + 1)
}

function checkDepth(value: Json, depth: number): void {
  if (typeof value !== 'object' || value === null) return
  if (depth >= JSON_DEPTH_MAX) throw tooDeep()
  for (const member of isJsonArray(value) ? value : Object.values(value))
    checkDepth(member, depth + 1)
}

function tooDeep(): JsonError {
  const message = `expected at most ${JSON_DEPTH_MAX} arrays and objects inside each other`
  return new JsonError('too_deep', message, { path: [], offset: 0 })
}

function normalizeArray(array: readonly Json[], depth: number): Json {
  let changed: Json[] | null = null
  for (let index = 0; index < array.length; index++) {
    const item = array[index] as Json
    const normal = normalize(item, depth)
    if (normal === item) continue
    changed ??= [...array]
    changed[index] = normal
  }
  return changed ?? array
}

function normalizeObject(object: JsonObject, depth: number): Json {
  const names = Object.keys(object)
  let changed: Record<string, Json> | null = null
  for (const [index, name] of names.entries()) {
    const value = object[name] as Json
    const normal = normalize(value, depth)
    if (changed === null) {
      if (normal === value && name.isWellFormed()) continue
      changed = {}
      for (const before of names.slice(0, index)) setMember(changed, before, object[before] as Json)
    }
    setMember(changed, name.toWellFormed(), normal)
  }
  return changed ?? object
}
