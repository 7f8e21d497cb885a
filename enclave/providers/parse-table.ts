import { FormatError } from '../../attestation/errors.ts'
import { parseStrictJson } from '../../attestation/json/parse-strict.ts'
import {
  isJsonArray,
  isJsonObject,
  type Json,
  type JsonObject,
} from '../../attestation/json/value.ts'
import type { ProviderEntry } from '../protocol/messages.ts'

/**
 * Entries of a table, patterns of an entry, and characters of a pattern, at most: many times what
 * the built-in table has.
 */
export const PROVIDERS_MAX = 64
const PATTERNS_MAX = 256
const PATTERN_CHARACTERS_MAX = 256

/**
 * The provider table of a JSON file: an array of ProviderEntry, with exactly its members. Names are
 * unique, origins are bare (scheme, host, port) and https, or http for a loopback host. Throws
 * FormatError `invalid_provider_table` that names the first entry and member at fault, or
 * JsonError.
 */
export function parseProviderTable(bytes: Uint8Array): readonly ProviderEntry[] {
  const table = parseStrictJson(bytes)
  if (!isJsonArray(table) || table.length === 0 || table.length > PROVIDERS_MAX)
    throw invalid(`expected an array of 1 to ${PROVIDERS_MAX} providers`)
  const entries = table.map(parseEntry)
  const repeated = entries.find(
    (entry, index) => entries.findIndex(({ name }) => name === entry.name) < index,
  )
  if (repeated) throw invalid(`expected each name once, got ${repeated.name} twice`)
  return entries
}

/**
 * `text` itself when it is an origin that the enclave may send to: `https://host[:port]`, or
 * `http://` and a loopback host. Throws FormatError `invalid_provider_table`.
 */
export function parseOrigin(text: string): string {
  const url = URL.canParse(text) ? new URL(text) : null
  if (url === null || url.origin !== text)
    throw invalid('expected an origin such as https://host or https://host:port')
  const isAllowed =
    url.protocol === 'https:' || (url.protocol === 'http:' && isLoopback(url.hostname))
  if (!isAllowed) throw invalid('expected an https origin, or http on a loopback host')
  return text
}

function parseEntry(entry: Json, position: number): ProviderEntry {
  try {
    if (!isJsonObject(entry)) throw invalid('expected an object')
    const members = Object.keys(entry).sort().join(', ')
    if (members !== 'models, name, origin, path')
      throw invalid('expected exactly the members models, name, origin and path')
    return {
      name: parseText(entry, 'name', /^[a-z0-9][a-z0-9-]{0,63}$/),
      origin: parseOrigin(parseText(entry, 'origin', /^https?:\/\/[!-~]{1,300}$/)),
      path: parseText(entry, 'path', /^\/[A-Za-z0-9._~!$&'()*+,;=:@%/-]{0,300}$/),
      models: parsePatterns(entry.models),
    }
  } catch (error) {
    if (error instanceof FormatError) throw invalid(`provider ${position}: ${error.message}`)
    throw error
  }
}

function parseText(entry: JsonObject, name: string, form: RegExp): string {
  const value = entry[name]
  if (typeof value !== 'string' || !form.test(value))
    throw invalid(`expected ${name} to match ${form.source}`)
  return value
}

function parsePatterns(value: Json | undefined): readonly string[] {
  const isPattern = (item: Json): item is string =>
    typeof item === 'string' && item.length > 0 && item.length <= PATTERN_CHARACTERS_MAX
  if (
    !isJsonArray(value) ||
    value.length === 0 ||
    value.length > PATTERNS_MAX ||
    !value.every(isPattern)
  )
    throw invalid(
      `expected models to be 1 to ${PATTERNS_MAX} patterns of 1 to ${PATTERN_CHARACTERS_MAX} characters`,
    )
  return value
}

function isLoopback(hostname: string): boolean {
  return hostname === 'localhost' || hostname === '[::1]' || /^127\.\d+\.\d+\.\d+$/.test(hostname)
}

function invalid(message: string): FormatError {
  return new FormatError('invalid_provider_table', message)
}
