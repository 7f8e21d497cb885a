import { PROVIDER_KEYS_MAX } from '#attestation/demands.ts'
import { isDialectName } from '#attestation/dialects/dialect-names.ts'
import { formOf, formsOf } from '#attestation/json/forms.ts'
import { parseStrictJson } from '#attestation/json/parse-strict.ts'
import type { Json } from '#attestation/json/value.ts'
import type { ProviderEntry } from '../protocol/enclave-api.ts'

/** Maximum number of entries in a table, and of patterns in an entry. */
export const PROVIDERS_MAX = 64
const PATTERNS_MAX = 256
const PATTERN = { form: /^[\s\S]{1,256}$/, expectation: 'a pattern of 1 to 256 characters' }

const CODE = 'invalid_provider_table'

/**
 * Parses a provider table from a JSON file: an array of ProviderEntry. An entry has no other
 * members. Names are unique. Origins have only scheme, host and port: https, or http for a loopback
 * host. Throws JsonError, or FormatError `invalid_provider_table` that names the first wrong entry
 * and member.
 */
export function parseProviderTable(bytes: Uint8Array): readonly ProviderEntry[] {
  const { arrayOf, invalid } = formsOf(CODE)
  const bounds = { min: 1, max: PROVIDERS_MAX }
  const entries = arrayOf(parseStrictJson(bytes), 'the table', bounds, ' providers').map(parseEntry)
  const names = entries.map(({ name }) => name)
  const repeated = names.find((name, index) => names.indexOf(name) < index)
  if (repeated !== undefined) throw invalid(`the name ${repeated}`, 'in the table once')
  return entries
}

/**
 * Returns `text` if it is an origin that the enclave may send to: `https://host[:port]`, or
 * `http://` and a loopback host. Throws FormatError `invalid_provider_table` with a message that
 * begins with `where`.
 */
export function parseOrigin(text: string, where = ''): string {
  const { invalid } = formsOf(CODE, where)
  const url = URL.canParse(text) ? new URL(text) : null
  if (url === null || url.origin !== text)
    throw invalid('the origin', 'such as https://host or https://host:port')
  const isAllowed =
    url.protocol === 'https:' || (url.protocol === 'http:' && isLoopback(url.hostname))
  if (!isAllowed) throw invalid('the origin', 'https, or http on a loopback host')
  return text
}

function parseEntry(json: Json, position: number): ProviderEntry {
  const where = `provider ${position}: `
  const { arrayOf, invalid, membersOf, objectOf, textOf } = formsOf(CODE, where)
  const { endpoints, keys, ...required } = objectOf(json, 'the entry')
  const entry = membersOf(required, 'the entry', ['name', 'origin', 'path', 'models'])
  const patterns = arrayOf(entry.models, 'models', { min: 1, max: PATTERNS_MAX })
  const origin = textOf(entry.origin, 'origin', formOf(/^https?:\/\/[!-~]{1,300}$/))
  return {
    name: textOf(entry.name, 'name', formOf(/^[a-z0-9][a-z0-9-]{0,63}$/)),
    origin: parseOrigin(origin, where),
    path: textOf(entry.path, 'path', PATH),
    models: patterns.map((pattern) => textOf(pattern, 'each of models', PATTERN)),
    ...(keys === undefined ? {} : { keys: parseKeys(keys) }),
    ...(endpoints === undefined ? {} : { endpoints: parseEndpoints() }),
  }

  function parseKeys(value: Json): readonly string[] {
    if (!origin.startsWith('https:')) throw invalid('keys', 'left out for an http origin')
    return arrayOf(value, 'keys', { min: 1, max: PROVIDER_KEYS_MAX }).map((key) =>
      textOf(key, 'each of keys', formOf(/^[0-9a-f]{64}$/)),
    )
  }

  function parseEndpoints(): NonNullable<ProviderEntry['endpoints']> {
    const parsed = Object.entries(objectOf(endpoints, 'endpoints')).map(([dialect, value]) => {
      if (!isDialectName(dialect) || dialect === 'chat')
        throw invalid('endpoints', 'an object of responses and messages')
      const { credential, ...others } = objectOf(value, dialect)
      const path = textOf(membersOf(others, dialect, ['path']).path, `${dialect}.path`, PATH)
      if (credential === undefined) return [dialect, { path }] as const
      if (credential !== 'x-api-key') throw invalid(`${dialect}.credential`, 'x-api-key')
      return [dialect, { path, credential }] as const
    })
    return Object.fromEntries(parsed)
  }
}

const PATH = formOf(/^\/[A-Za-z0-9._~!$&'()*+,;=:@%/-]{0,300}$/)

function isLoopback(hostname: string): boolean {
  return hostname === 'localhost' || hostname === '[::1]' || /^127\.\d+\.\d+\.\d+$/.test(hostname)
}
