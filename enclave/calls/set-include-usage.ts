import type { Json } from '../../attestation/json/value.ts'
import { isJsonObject } from '../../attestation/json/value.ts'

/**
 * The body with `stream_options.include_usage` set to true and every other byte as it was: order of members, spelling of
 * numbers and white space are the caller's (a provider that follows a JSON schema answers in the schema's order).
 *
 * `body` is a JSON object that parseStrictJson accepted, `options` the value of its `stream_options`, null when it has
 * none. Options that are no object give way: the provider would refuse them anyway.
 */
export function setIncludeUsage(body: Uint8Array, options: Json): Uint8Array {
  const value = JSON.stringify({ ...(isJsonObject(options) ? options : {}), include_usage: true })
  const range = findMember(body, 'stream_options')
  if (range) return splice(body, range, value)
  const end = body.lastIndexOf(CLOSE_BRACE)
  return splice(body, { start: end, end }, `,"stream_options":${value}`)
}

type Range = { readonly start: number; readonly end: number }

const QUOTE = 0x22
const BACKSLASH = 0x5c
const COMMA = 0x2c
const OPENERS: ReadonlySet<number> = new Set([0x7b, 0x5b])
const CLOSERS: ReadonlySet<number> = new Set([0x7d, 0x5d])
const CLOSE_BRACE = 0x7d

/** Where the value of the top-level member `name` stands in the text of a valid JSON object, or null. */
function findMember(body: Uint8Array, name: string): Range | null {
  let depth = 0
  let isName = false
  let valueStart = -1
  for (let index = 0; index < body.length; index++) {
    const byte = body[index] ?? 0
    if (byte === QUOTE) {
      const end = endOfString(body, index)
      if (depth === 1 && isName && decodeString(body.subarray(index, end)) === name)
        valueStart = body.indexOf(COLON, end) + 1
      isName = false
      index = end - 1
    } else if (OPENERS.has(byte)) {
      depth++
      isName = depth === 1
    } else if ((byte === COMMA && depth === 1) || (CLOSERS.has(byte) && --depth === 0)) {
      if (valueStart >= 0) return { start: valueStart, end: index }
      isName = true
    }
  }
  return null
}

const COLON = 0x3a

/** Offset after the closing quote of the string that opens at `start`. */
function endOfString(body: Uint8Array, start: number): number {
  let index = start + 1
  while (index < body.length && body[index] !== QUOTE) index += body[index] === BACKSLASH ? 2 : 1
  return index + 1
}

/** A name may be written with escapes: `stream\u005foptions` is the same member. */
function decodeString(token: Uint8Array): unknown {
  return JSON.parse(Buffer.from(token).toString('utf8'))
}

function splice(body: Uint8Array, { start, end }: Range, text: string): Uint8Array {
  return Buffer.concat([body.subarray(0, start), Buffer.from(text), body.subarray(end)])
}
