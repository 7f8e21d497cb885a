import { readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { Ajv2020 } from 'ajv/dist/2020.js'
import { describe, expect, it } from 'vitest'
import { encodeHex } from '#attestation/bytes.ts'
import { PolicyError } from '#attestation/nitro/policy.ts'
import { releaseKeyOf } from '#attestation/release/release-signatures.ts'
import { signRelease, signReleaseList } from '#attestation/release/verify-release.ts'
import { type Policy, readPolicyFile } from '#attestation/report/policy-file.ts'
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
  JSON.parse(readFileSync(join(import.meta.dirname, '../../client/policy.schema.json'), 'utf8')),
)

/** Whether the client and the command line take it. */
async function isRead(file: Readonly<Record<string, unknown>>): Promise<boolean> {
  try {
    await readPolicyFile(file as Policy)
    return true
  } catch (fault) {
    if (fault instanceof PolicyError) return false
    throw fault
  }
}

describe('the JSON Schema of a policy', () => {
  it.each([
    ['a release', { releases: signed, releaseKeys: KEY }],
    ['a list as text', { releases: [JSON.stringify(list)], releaseKeys: [KEY], releaseSigners: 1 }],
    ['measurements', { measurements: [PCRS], configurations: [boot, DIGEST], roots: [DIGEST] }],
    ['one set by number', { measurements: { 0: PCRS.PCR0 }, configurations: JSON.stringify(boot) }],
  ])('schema and client take enclaves of %s', async (_, enclaves) => {
    const file = { $schema: 'policy.schema.json', enclaves }
    expect(validate(file), JSON.stringify(validate.errors)).toBe(true)
    expect(await isRead(file)).toBe(true)
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
  ])('schema and client refuse enclaves of %s', async (_, enclaves) => {
    const file = { enclaves }
    expect(await isRead(file)).toBe(false)
    expect(validate(file)).toBe(false)
  })

  const enclaves = { releases: signed, releaseKeys: KEY }
  const examples = join(import.meta.dirname, '../../docs/provider-policies')
  const files = readdirSync(examples).filter((name) => name.endsWith('.json'))
  const exampleOf = (name: string) => JSON.parse(readFileSync(join(examples, name), 'utf8'))
  const { providers } = exampleOf('nitro.json')

  it.each(files)('schema and client take the example %s, alone and in a list', async (name) => {
    const file = exampleOf(name)
    for (const one of [file, { enclaves, providers: [file.providers, providers] }]) {
      expect(validate(one), JSON.stringify(validate.errors)).toBe(true)
      expect(await isRead(one)).toBe(true)
    }
  })

  it.each([
    ['neither part', {}],
    ['a member that there is not', { enclaves, expect: {} }],
    ['the members of enclaves beside them', { enclaves, roots: DIGEST }],
    ['enclaves that are null', { enclaves: null, providers }],
    ['providers that are null', { enclaves, providers: null }],
    ['no providers', { enclaves, providers: [] }],
    ['too many providers', { enclaves, providers: Array.from({ length: 65 }, () => providers) }],
    ['a provider as text', { enclaves, providers: JSON.stringify(providers) }],
    ['a provider with an unknown member', { providers: { ...providers, trust: 1 } }],
    ['a provider of another kind', { providers: { ...providers, kind: 'other' } }],
    ['a provider without TLS', { providers: { ...providers, origins: ['http://a.example'] } }],
  ])('schema and client refuse a policy of %s', async (_, file) => {
    expect(await isRead(file)).toBe(false)
    expect(validate(file)).toBe(false)
  })
})
