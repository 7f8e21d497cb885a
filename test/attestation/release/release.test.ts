import { expect, it } from 'vitest'
import type { Json, JsonObject } from '#attestation/json/value.ts'
import {
  configurationOf,
  INPUTS_MAX,
  parseRelease,
  parseSignedRelease,
} from '#attestation/release/release.ts'
import { faultOf, RELEASE_JSON, SIGNED_RELEASE } from './release-vectors.ts'

const payload = RELEASE_JSON.release as JsonObject
const measurements = payload.measurements as JsonObject

const parseWith = (parts: JsonObject) => () => parseRelease({ ...payload, ...parts })
const without = (object: JsonObject, gone: string): JsonObject =>
  Object.fromEntries(Object.entries(object).filter(([name]) => name !== gone))

it('a signed release is read as it is written', () => {
  expect(parseSignedRelease(RELEASE_JSON)).toEqual(RELEASE_JSON)
})

it.each<[string, Json]>([
  ['no object', []],
  ['no format', without(RELEASE_JSON, 'format')],
  ['a list of releases', { ...RELEASE_JSON, format: 'affidavit-releases/v1' }],
  ['a later version', { ...RELEASE_JSON, format: 'affidavit-release/v2' }],
])('a signed release is refused for its format when it is %s', (_, json) => {
  expect(faultOf(() => parseSignedRelease(json))?.code).toBe('unknown_release_format')
})

it.each(
  Object.entries<JsonObject>({
    'an unknown member': { ...RELEASE_JSON, note: '' },
    'no signatures': without(RELEASE_JSON, 'signatures'),
    'an empty list of signatures': { ...RELEASE_JSON, signatures: [] },
    'two signatures of one key': {
      ...RELEASE_JSON,
      signatures: Array(2).fill(SIGNED_RELEASE.signatures[0]),
    },
    '17 signatures': {
      ...RELEASE_JSON,
      signatures: Array(17).fill(SIGNED_RELEASE.signatures[0]),
    },
    'an unknown member of a signature': {
      ...RELEASE_JSON,
      signatures: [{ ...SIGNED_RELEASE.signatures[0], key_id: '1' }],
    },
    'a signature of another length': {
      ...RELEASE_JSON,
      signatures: [{ public_key: SIGNED_RELEASE.signatures[0]?.public_key ?? '', signature: 'ab' }],
    },
  }),
)('a signed release is refused with %s', (_, json) => {
  expect(faultOf(() => parseSignedRelease(json))?.code).toBe('invalid_release')
})

it('a release needs no PCR8, since an image need not be signed', () => {
  expect(
    parseWith({ measurements: without(measurements, 'PCR8') })().measurements,
  ).not.toHaveProperty('PCR8')
})

it(`a release has up to ${INPUTS_MAX} inputs, even one called __proto__`, () => {
  const names = ['__proto__', ...Array.from({ length: INPUTS_MAX - 1 }, (_, at) => `input-${at}`)]
  const inputs = Object.fromEntries(names.map((name) => [name, 'ab'.repeat(32)]))
  expect(Object.keys(parseWith({ inputs })().inputs)).toHaveLength(INPUTS_MAX)
  expect(faultOf(parseWith({ inputs: { ...inputs, more: 'ab'.repeat(32) } }))?.code).toBe(
    'invalid_release',
  )
})

it('a release may name the boot configuration of its enclaves, in one form', () => {
  const configuration = 'ab'.repeat(32)
  expect(configurationOf(parseWith({ configuration })())).toEqual(new Uint8Array(32).fill(0xab))
  expect(configurationOf(parseWith({})())).toBeNull()
  for (const wrong of [
    '',
    'AB'.repeat(32),
    `0x${configuration}`,
    'ab'.repeat(31),
    null,
    [configuration],
  ])
    expect(faultOf(parseWith({ configuration: wrong }))?.message).toContain('release.configuration')
})

it.each(Object.keys(payload))('a release is refused without %s', (name) => {
  expect(faultOf(() => parseRelease(without(payload, name)))?.message).toContain(name)
})

it.each<[string, JsonObject]>([
  ['version', { version: '' }],
  ['version', { version: '1.0 beta' }],
  ['version', { version: '1'.repeat(65) }],
  ['version', { version: '1.0\u202e' }],
  ['version', { version: 1 }],
  ['git_commit', { git_commit: '0123' }],
  ['git_commit', { git_commit: null }],
  ['git_commit', { git_commit: 'A'.repeat(40) }],
  ['created_at', { created_at: '2026-11-21' }],
  ['created_at', { created_at: '2026-11-21T14:00:00.000Z' }],
  ['created_at', { created_at: '2026-11-21T14:00:00+00:00' }],
  ['created_at', { created_at: '2026-02-30T14:00:00Z' }],
  ['created_at', { created_at: '2026-11-21T24:00:00Z' }],
  ['created_at', { created_at: '2026-11-21T23:59:60Z' }],
  ['created_at', { created_at: '1969-12-31T23:59:59Z' }],
  ['created_at', { created_at: 1763733600 }],
  ['architecture', { architecture: 'arm64' }],
  ['measurements', { measurements: [] }],
  ['measurements', { measurements: without(measurements, 'PCR2') }],
  ['measurements', { measurements: { ...measurements, PCR3: 'ab'.repeat(48) } }],
  ['measurements.PCR0', { measurements: { ...measurements, PCR0: '00'.repeat(48) } }],
  ['measurements.PCR1', { measurements: { ...measurements, PCR1: 'ab'.repeat(47) } }],
  ['measurements.PCR2', { measurements: { ...measurements, PCR2: 'AB'.repeat(48) } }],
  ['measurements.PCR8', { measurements: { ...measurements, PCR8: '00'.repeat(48) } }],
  ['inputs', { inputs: ['ab'.repeat(32)] }],
  ['inputs', { inputs: { 'a b': 'ab'.repeat(32) } }],
  ['inputs', { inputs: { '': 'ab'.repeat(32) } }],
  ['inputs', { inputs: { ä: 'ab'.repeat(32) } }],
  ['inputs.kernel', { inputs: { kernel: 'ab' } }],
  ['the release', { more: true }],
])('a release is refused at %s: %j', (name, parts) => {
  const fault = faultOf(parseWith(parts))
  expect(fault?.code).toBe('invalid_release')
  expect(fault?.message).toContain(name === 'the release' ? 'release' : `release.${name}`)
})
