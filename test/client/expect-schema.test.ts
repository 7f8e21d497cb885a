import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { Ajv2020 } from 'ajv/dist/2020.js'
import { describe, expect, it } from 'vitest'
import { encodeHex } from '#attestation/bytes.ts'
import { releaseKeyOf } from '#attestation/release/release-signatures.ts'
import { signRelease, signReleaseList } from '#attestation/release/verify-release.ts'
import {
  ExpectationsError,
  type ExpectationsFile,
  readExpectationsFile,
} from '#attestation/report/expectations.ts'
import { buildEntry, buildRelease } from '../support/build-release.ts'

const SECRET = new Uint8Array(32).fill(7)
const KEY = encodeHex(releaseKeyOf(SECRET))
const DIGEST = 'c0'.repeat(32)
const PCRS = { PCR0: 'a0'.repeat(48), PCR1: 'a1'.repeat(48) }
const boot = { chain_id: 1, contract: `0x${'11'.repeat(20)}`, providers: [] }
const release = buildRelease({ configuration: DIGEST })
const signed = signRelease(release, SECRET)
const list = signReleaseList(
  { issued_at: '2026-03-01T00:00:00Z', releases: [buildEntry({ release })] },
  SECRET,
)

const validate = new Ajv2020().compile(
  JSON.parse(readFileSync(join(import.meta.dirname, '../../client/expect.schema.json'), 'utf8')),
)

/** Whether the client and the command line take it. */
function isRead(file: Readonly<Record<string, unknown>>): boolean {
  try {
    readExpectationsFile(file as ExpectationsFile)
    return true
  } catch (fault) {
    if (fault instanceof ExpectationsError) return false
    throw fault
  }
}

describe('the JSON Schema of expectations', () => {
  it.each([
    ['a release', { releases: signed, releaseKeys: KEY }],
    ['a list as text', { releases: [JSON.stringify(list)], releaseKeys: [KEY], releaseSigners: 1 }],
    ['measurements', { measurements: [PCRS], configurations: [boot, DIGEST], roots: [DIGEST] }],
    ['one set by number', { measurements: { 0: PCRS.PCR0 }, configurations: JSON.stringify(boot) }],
    ['a schema', { $schema: 'expect.schema.json', releases: signed, releaseKeys: KEY }],
  ])('schema and client take %s', (_, file) => {
    expect(validate(file), JSON.stringify(validate.errors)).toBe(true)
    expect(isRead(file)).toBe(true)
  })

  it.each([
    ['nothing', {}],
    ['a name that is misspelt', { measurements: PCRS, configuration: DIGEST }],
    ['a release without a key', { releases: signed }],
    ['a key without a release', { releaseKeys: KEY, measurements: PCRS, configurations: DIGEST }],
    ['a key that is too short', { releases: signed, releaseKeys: 'ab' }],
    ['a key in capitals', { releases: signed, releaseKeys: KEY.toUpperCase() }],
    ['signers that are none', { releases: signed, releaseKeys: KEY, releaseSigners: 0 }],
    ['measurements without a configuration', { measurements: PCRS }],
    ['measurements that name no image', { measurements: { PCR1: DIGEST }, configurations: DIGEST }],
    ['a register of other size', { measurements: { PCR0: DIGEST }, configurations: DIGEST }],
    ['a root that is none', { measurements: PCRS, configurations: DIGEST, roots: ['root.pem'] }],
  ])('schema and client refuse %s', (_, file) => {
    expect(isRead(file)).toBe(false)
    expect(validate(file)).toBe(false)
  })
})
