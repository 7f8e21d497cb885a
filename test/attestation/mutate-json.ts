import fc from 'fast-check'
import { isJsonArray, isJsonObject, type Json } from '#attestation/json/value.ts'

/** Where a value stands inside another. */
export type JsonPath = readonly (string | number)[]

/** Every place inside `value`, its own included, parents before their children. */
export function placesIn(value: Json, path: JsonPath = []): readonly JsonPath[] {
  const children = isJsonArray(value)
    ? [...value.entries()]
    : isJsonObject(value)
      ? Object.entries(value)
      : []
  return [path, ...children.flatMap(([key, child]) => placesIn(child, [...path, key]))]
}

/**
 * `value` with one change somewhere at or below `root`: a member gone, replaced or added, a
 * character flipped.
 */
export function mutatedAt(value: Json, root: JsonPath): fc.Arbitrary<Json> {
  const inside = valueAt(value, root)
  const places = placesIn(inside)
  return fc
    .tuple(fc.constantFrom(...places), fc.nat(3), fc.jsonValue({ maxDepth: 2 }), fc.nat(1000))
    .map(([place, kind, other, position]) => {
      const path = [...root, ...place]
      const before = valueAt(value, path)
      if (kind === 0 && place.length > 0) return removeAt(value, path)
      if (kind === 1 && typeof before === 'string')
        return replaceAt(value, path, flipCharacter(before, position))
      if (kind === 2) return replaceAt(value, path, withAddition(before, other as Json, position))
      return replaceAt(value, path, other as Json)
    })
}

/** The value at `path`. */
export function valueAt(value: Json, path: JsonPath): Json {
  let current: Json | undefined = value
  for (const key of path) current = (current as Readonly<Record<string | number, Json>>)[key]
  if (current === undefined) throw new Error(`nothing at ${path.join('.')}`)
  return current
}

/** `value` with another value at `path`. */
export function replaceAt(value: Json, path: JsonPath, replacement: Json): Json {
  const [key, ...rest] = path
  if (key === undefined) return replacement
  const child = replaceAt(valueAt(value, [key]), rest, replacement)
  if (isJsonArray(value)) return value.with(Number(key), child)
  return { ...(value as Readonly<Record<string, Json>>), [key]: child }
}

/** `value` without the member or item at `path`. */
export function removeAt(value: Json, path: JsonPath): Json {
  const parentPath = path.slice(0, -1)
  const parent = valueAt(value, parentPath)
  const key = path.at(-1) ?? ''
  if (isJsonArray(parent)) return replaceAt(value, parentPath, parent.toSpliced(Number(key), 1))
  const { [key]: _, ...others } = parent as Readonly<Record<string, Json>>
  return replaceAt(value, parentPath, others)
}

/** The text with another last digit: what a comparison of its beginning takes for the same. */
export function otherLastDigit(text: string): string {
  return `${text.slice(0, -1)}${text.endsWith('1') ? '2' : '1'}`
}

function withAddition(value: Json, addition: Json, position: number): Json {
  if (isJsonArray(value)) return value.toSpliced(position % (value.length + 1), 0, addition)
  if (isJsonObject(value)) return { ...value, [`added${position}`]: addition }
  if (typeof value === 'number') return value + 1
  return typeof value === 'string' ? `${value} ` : addition
}

function flipCharacter(text: string, position: number): string {
  const index = position % Math.max(1, text.length)
  const flipped = String.fromCharCode(text.charCodeAt(index) ^ 1)
  return (text.slice(0, index) + flipped + text.slice(index + 1)).toWellFormed()
}
