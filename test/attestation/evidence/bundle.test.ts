import fc from 'fast-check'
import { expect, it } from 'vitest'
import { FormatError } from '#attestation/errors.ts'
import { createBundle, parseEvidenceBundle, redactBundle } from '#attestation/evidence/bundle.ts'
import { isJsonArray, isJsonObject, type Json, type JsonObject } from '#attestation/json/value.ts'
import { succeeds } from '../../support/succeeds.ts'
import { buildRecord } from '../build-record.ts'
import { type JsonPath, mutatedAt, placesIn, removeAt, replaceAt, valueAt } from '../mutate-json.ts'
import { BOOT_CONFIGURATION, buildEvidence } from './build-evidence.ts'
import { BUNDLE_SCHEMA, isValid } from './check-schema.ts'
import { REAL_BUNDLE } from './vectors.ts'

const { bundle } = buildEvidence()
const pending = buildEvidence({ isMined: false }).bundle
const hashOf = (seed: number) => `0x${seed.toString(16).padStart(64, '0')}`
function withReanchored(reanchored: Json): JsonObject {
  const json: JsonObject = JSON.parse(JSON.stringify(bundle))
  return { ...json, record: { ...(json.record as JsonObject), reanchored } }
}
/** The bundle before it was mined, which says why it has no block. */
function withoutBlock(changes: JsonObject, more: JsonObject = {}): JsonObject {
  const no_block = { reason: 'not_readable', transaction: pending.record.tx_hash, ...changes }
  return { ...JSON.parse(JSON.stringify(pending)), no_block, ...more }
}
const VALID: readonly (readonly [string, Json])[] = [
  ['a mined one', bundle],
  ['one before it was mined', pending],
  ['one that says why it has no block', withoutBlock({})],
  ['one without the request', redactBundle(bundle, { request: true })],
  ['one without the response', redactBundle(bundle, { response: true })],
  ['one without both', redactBundle(bundle, { request: true, response: true })],
  ['the published vector', REAL_BUNDLE],
  ['one whose head was anchored again', withReanchored([hashOf(1), hashOf(2)])],
  [
    'one with as many as there may be',
    withReanchored(Array.from({ length: 64 }, (_, at) => hashOf(at))),
  ],
]

const ORIGIN_PLACE: JsonPath = ['record', 'receipt', 'provider', 'origin']

/** Objects with any members; all other objects have exactly their own. */
const FREE: readonly RegExp[] = [/^record\.re(quest|sponse)\b/, /^boot_configuration\b/]

it.each<[string, Json]>([
  ['none', []],
  ['too many', Array.from({ length: 65 }, (_, at) => hashOf(at))],
  ['no array', hashOf(1)],
  ['null', null],
  ['one in upper case', [hashOf(255).replaceAll('f', 'F')]],
  ['one without prefix', ['ab'.repeat(32)]],
])('the parser and the schema refuse a wrong list reanchored: %s', (_, reanchored) => {
  const json = withReanchored(reanchored)
  expect(() => parseEvidenceBundle(json)).toThrow(/record\.reanchored/)
  expect(isValid(json)).toBe(false)
})

it.each(VALID)(
  'parseEvidenceBundle gives a bundle as it is, and the schema accepts it: %s',
  (_, valid) => {
    expect(parseEvidenceBundle(valid)).toEqual(valid)
    expect(isValid(valid)).toBe(true)
  },
)

it('the parser and the schema refuse a missing member, one more member and another type in any place', () => {
  const places = strictPlaces()
  expect(places.length).toBeGreaterThan(40)
  for (const path of places) {
    if (path.length > 0 && !isItem(path)) expectRefused(removeAt(bundle, path))
    const value = valueAt(bundle, path)
    if (isJsonObject(value)) expectRefused(replaceAt(bundle, path, { ...value, added: 1 }))
    for (const other of [true, -1, 0.5, 'x', '', {}])
      if (!isAllowed(path, other)) expectRefused(replaceAt(bundle, path, other))
    // The schema does not see them all.
    for (const other of [null, 2 ** 53, [], ['0x'], [null]])
      if (!isAllowed(path, other))
        expect(() => parseEvidenceBundle(replaceAt(bundle, path, other))).toThrow(FormatError)
  }
})

it.each(['providers', 'chain_id', 'contract'])(
  'parseEvidenceBundle names the member of the boot configuration that is missing: %s',
  (name) => {
    expect(() => parseEvidenceBundle(removeAt(bundle, ['boot_configuration', name]))).toThrow(
      new RegExp(`boot_configuration.${name}`),
    )
  },
)

it.each<[string, JsonPath, (text: string) => Json]>([
  ['a signature without 0x', ['record', 'signature'], (text) => text.slice(2)],
  ['a signature of 64 bytes', ['record', 'signature'], (text) => text.slice(0, -2)],
  ['a line end after a hash', ['record', 'tx_hash'], (text) => `${text}\n`],
  ['base64url', ['record', 'attestation'], () => 'AA-_'],
  ['half a byte of transaction', ['transaction'], (text) => text.slice(0, -1)],
  ['an empty transaction', ['transaction'], () => '0x'],
  ['a transaction of 1025 bytes', ['transaction'], () => `0x${'00'.repeat(1025)}`],
  ['a header of 16 KiB and a byte', ['block', 'header'], () => `0x${'00'.repeat(16_385)}`],
  ['a proof without nodes', ['block', 'transaction_proof'], () => []],
  [
    'a proof of 18 nodes',
    ['block', 'receipt_proof'],
    () => Array.from({ length: 18 }, () => '0x00'),
  ],
  ['a node that is empty', ['block', 'receipt_proof', 0], () => '0x'],
  [
    'a path of 55 hashes',
    ['record', 'log', 'path'],
    () => Array.from({ length: 55 }, () => '00'.repeat(32)),
  ],
  ['an origin of 309 characters', ORIGIN_PLACE, () => `https://${'h'.repeat(301)}`],
])('parseEvidenceBundle refuses a value in another form: %s', (_, path, change) => {
  const changed = replaceAt(bundle, path, change(String(valueAt(bundle, path))))
  expect(() => parseEvidenceBundle(changed)).toThrow(FormatError)
})

it('parseEvidenceBundle gives or refuses any JSON, and the schema accepts what it gives', () => {
  fc.assert(
    fc.property(fc.oneof(fc.jsonValue(), mutatedAt(bundle, [])), (value) => {
      try {
        parseEvidenceBundle(value as Json)
      } catch (fault) {
        expect(fault).toBeInstanceOf(FormatError)
        return
      }
      expect(isValid(value as Json)).toBe(true)
    }),
    { numRuns: 200 },
  )
})

it.each([
  [16_384, true],
  [16_385, false],
  [16_386, false],
  [17_408, false],
])('the schema and the parser agree about a document of %i bytes', (bytes, isTaken) => {
  const changed = replaceAt(bundle, ['record', 'attestation'], base64OfBytes(bytes))
  expect(isValid(changed)).toBe(isTaken)
  expect(succeeds(() => parseEvidenceBundle(changed))).toBe(isTaken)
})

it.each<[string, JsonPath, (text: string) => Json]>([
  ['unused bits of base64, one digit', ['record', 'attestation'], () => 'AB=='],
  ['unused bits of base64, two digits', ['record', 'attestation'], () => 'AAB='],
  [
    'a boot configuration with a format',
    ['boot_configuration'],
    () => ({ ...BOOT_CONFIGURATION, format: 'x' }),
  ],
  ['https without TLS', ['record', 'receipt', 'provider', 'tls'], () => null],
  ['TLS without https', ORIGIN_PLACE, () => 'http://127.0.0.1'],
  ['the port that the scheme has', ORIGIN_PLACE, () => 'https://h:443'],
])('the schema and the parser refuse %s', (_, path, change) => {
  expectRefused(replaceAt(bundle, path, change(String(valueAt(bundle, path)))))
})

it('the schema refuses a line end after any fixed text, even where $ matches before a line end', () => {
  const texts = strictPlaces().filter(
    (path) => typeof valueAt(bundle, path) === 'string' && !isText(path, ''),
  )
  expect(texts.length).toBeGreaterThan(20)
  for (const path of texts) {
    const changed = replaceAt(bundle, path, `${valueAt(bundle, path)}\n`)
    expect([path, isValid(changed, withLooseEnds)]).toEqual([path, false])
  }
})

it.each<[string, JsonObject]>([
  ['beside a block', withoutBlock({}, { block: bundle.block as unknown as Json })],
  ['another reason', withoutBlock({ reason: 'lost' })],
  ['no reason', withoutBlock({ reason: null })],
  ['a hash in upper case', withoutBlock({ transaction: `0x${'AB'.repeat(32)}` })],
  ['one more member', withoutBlock({ number: 7 })],
  ['null', withoutBlock({}, { no_block: null })],
])('the parser and the schema refuse a wrong no_block: %s', (_, json) => {
  expectRefused(json)
})

it('the transaction of no_block is one that the record names', () => {
  const other = withoutBlock({ transaction: hashOf(7) })
  expect(() => parseEvidenceBundle(other)).toThrow('record.tx_hash, or one of')
  const again = withReanchored([hashOf(6), hashOf(7)])
  const named = { ...other, record: { ...(again.record as JsonObject) } }
  expect(parseEvidenceBundle(named).no_block?.transaction).toBe(hashOf(7))
})

const { stored } = buildRecord()
const parts = {
  record: stored,
  bootConfiguration: BOOT_CONFIGURATION,
  transaction: '0x02',
  block: null,
}

it('createBundle takes a served record and leaves out its id and the unset members of the request', () => {
  const { record } = createBundle(parts)
  expect(Object.keys(stored)).toContain('id')
  expect(record).not.toHaveProperty('id')
  expect(valueAt(stored, ['request', 'stop'])).toBe(null)
  expect(record).not.toHaveProperty('request.stop')
  expect(valueAt(record, ['request', 'response_format', 'json_schema', 'schema'])).toBe(null)
})

it('the bundle of an encrypted call has hashes in place of what only its caller kept', () => {
  const encrypted = buildRecord({ receipt: { encrypted: true } })
  const { request: _request, response: _response, id: _id, ...bound } = encrypted.stored
  const usage = { prompt_tokens: 1, completion_tokens: 1, total_tokens: 2 }
  const content = { request: null, response: null, redacted: true, usage }
  const { record } = createBundle({ ...parts, record: { ...encrypted.stored, ...content } })
  expect(record).toEqual({
    ...bound,
    request_hash: valueAt(encrypted.stored, ['receipt', 'request_hash']),
    response_hash: valueAt(encrypted.stored, ['receipt', 'response_hash']),
  })
})

it('createBundle refuses what is no record, no transaction or no boot configuration', () => {
  for (const changed of [
    { record: {} },
    { record: { ...stored, request: null, response: null } },
    { record: { ...stored, request: 7 } },
    { record: { ...stored, note: 'x' } },
    { transaction: '02' },
    { bootConfiguration: {} },
  ])
    expect(() => createBundle({ ...parts, ...changed })).toThrow(FormatError)
})

/** The schema as Python reads it, where $ matches before a line end too. */
const withLooseEnds: JsonObject = JSON.parse(JSON.stringify(BUNDLE_SCHEMA), (name, value) =>
  name === 'pattern' && typeof value === 'string' ? value.replace(/\$$/, '\\n?$') : value,
)

function expectRefused(json: Json): void {
  expect(() => parseEvidenceBundle(json)).toThrow(FormatError)
  expect(isValid(json)).toBe(false)
}

/** Places whose form the format fixes. */
function strictPlaces(): readonly JsonPath[] {
  return placesIn(bundle).filter((path) => !FREE.some((free) => free.test(path.join('.'))))
}

function isItem(path: JsonPath): boolean {
  return typeof path.at(-1) === 'number'
}

/** Whether another value of this kind is right in its form there. */
function isAllowed(path: JsonPath, value: Json): boolean {
  const place = path.join('.')
  if (/receipt\.(encrypted|credential\.demanded)$/.test(place)) return typeof value === 'boolean'
  if (place === 'record.receipt.headers') return isJsonObject(value) && !Object.keys(value).length
  if (place === 'block' || place === 'record.receipt.stream_hash') return value === null
  if (place === 'record.receipt.model.returned') return value === null || isText(path, value)
  if (place === 'record.log.path') return isJsonArray(value) && value.length === 0
  return isText(path, value)
}

/** Texts of the receipt are the enclave's and free. */
function isText(path: JsonPath, value: Json): boolean {
  const isFree =
    /receipt\.(provider\.name|provider\.tls\.(protocol|subject|issuer)|model\.\w+)$/.test(
      path.join('.'),
    )
  return isFree && typeof value === 'string'
}

/** Base64 of so many bytes of zero. */
function base64OfBytes(count: number): string {
  return Buffer.alloc(count).toString('base64')
}
