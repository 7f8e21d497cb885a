import type { Json } from '#attestation/json/value.ts'
import { isJsonObject } from '#attestation/json/value.ts'

/**
 * Sets `stream_options.include_usage` to true and keeps every other byte: the order of members in a
 * JSON schema sets the order of members in the answer. `body` is a JSON object that parseStrictJson
 * accepted. `options` is the value of `stream_options` in the body, or null. Options that are not
 * an object are replaced, because the provider would refuse them.
 */
export function setIncludeUsage(body: Uint8Array, options: Json): Uint8Array {
  const value = JSON.stringify({ ...(isJsonObject(options) ? options : {}), include_usage: true })
  const member = findMember(body, 'stream_options')
  if (member) return splice(body, { start: member.valueStart, end: member.end }, value)
  const end = body.lastIndexOf(CLOSE_BRACE)
  return splice(body, { start: end, end }, `,"stream_options":${value}`)
}

/**
 * Removes the top-level member `name` and keeps every other byte. `body` is a JSON object that
 * parseStrictJson accepted. Returns `body` itself if it does not have the member.
 */
export function removeMember(body: Uint8Array, name: string): Uint8Array {
  const member = findMember(body, name)
  if (member === null) return body
  const { start, end, commaBefore } = member
  if (body[end] === COMMA) return splice(body, { start, end: end + 1 }, '')
  return splice(body, { start: commaBefore ?? start, end }, '')
}

type Range = { readonly start: number; readonly end: number }

/** A member from its name's opening quote (`start`) to the next comma or brace (not included). */
type Member = Range & {
  /** Start of the value, including the white space before it. */
  readonly valueStart: number
  /** Position of the comma before the member. Null for the first member. */
  readonly commaBefore: number | null
}

const QUOTE = 0x22
const BACKSLASH = 0x5c
const COMMA = 0x2c
const OPENERS: ReadonlySet<number> = new Set([0x7b, 0x5b])
const CLOSERS: ReadonlySet<number> = new Set([0x7d, 0x5d])
const CLOSE_BRACE = 0x7d

/** Finds the top-level member `name` in the text of a valid JSON object. Null if it is missing. */
function findMember(body: Uint8Array, name: string): Member | null {
  let depth = 0
  let isName = false
  let commaBefore: number | null = null
  let found: Omit<Member, 'end'> | null = null
  for (let index = 0; index < body.length; index++) {
    const byte = body[index] ?? 0
    if (byte === QUOTE) {
      const end = endOfString(body, index)
      if (depth === 1 && isName && decodeString(body.subarray(index, end)) === name)
        found = { start: index, valueStart: body.indexOf(COLON, end) + 1, commaBefore }
      isName = false
      index = end - 1
    } else if (OPENERS.has(byte)) {
      depth++
      isName = depth === 1
    } else if ((byte === COMMA && depth === 1) || (CLOSERS.has(byte) && --depth === 0)) {
      if (found !== null) return { ...found, end: index }
      isName = true
      commaBefore = index
    }
  }
  return null
}

const COLON = 0x3a

/** Returns the offset after the closing quote of the string that opens at `start`. */
function endOfString(body: Uint8Array, start: number): number {
  let index = start + 1
  while (index < body.length && body[index] !== QUOTE) index += body[index] === BACKSLASH ? 2 : 1
  return index + 1
}

/** A name may contain escapes: `stream\u005foptions` means `stream_options`. */
function decodeString(token: Uint8Array): unknown {
  return JSON.parse(Buffer.from(token).toString('utf8'))
}

function splice(body: Uint8Array, { start, end }: Range, text: string): Uint8Array {
  return Buffer.concat([body.subarray(0, start), Buffer.from(text), body.subarray(end)])
}
