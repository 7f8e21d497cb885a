import { readFileSync } from 'node:fs'
import { describe, expect, it } from 'vitest'
import { encodeHex } from '#attestation/bytes.ts'
import { releaseKeyOf } from '#attestation/release/release-signatures.ts'
import { signRelease } from '#attestation/release/verify-release.ts'
import { addExpectedFile, fillPolicy, readExpectedFile } from '#src/web/verify/expected-files.ts'
import { NO_POLICY } from '#src/web/verify/job.ts'
import { PolicyFault } from '#src/web/verify/policy-fault.ts'
import { readGivenPolicy } from '#src/web/verify/read-policy.ts'
import { buildRelease } from '../../../support/build-release.ts'

const PEM = '-----BEGIN CERTIFICATE-----\nAA==\n-----END CERTIFICATE-----\n'
const SECRET = new Uint8Array(32).fill(7)
const PCR0 = 'ab'.repeat(48)

const read = (value: unknown, name = 'a.json') =>
  readExpectedFile(name, Buffer.from(typeof value === 'string' ? value : JSON.stringify(value)))

describe('a file that says whom the reader trusts', () => {
  it.each([
    ['policy', { enclaves: { measurements: [{ PCR0 }] } }],
    ['policy', { providers: [] }],
    ['release', { format: 'affidavit-release/v1' }],
    ['release', { format: 'affidavit-releases/v1' }],
    ['measurements', { Measurements: { HashAlgorithm: 'Sha384', PCR0 } }],
    ['measurements', { PCR0 }],
    ['configuration', { chain_id: 1, providers: [] }],
    ['roots', PEM],
  ])('a file is recognised by its form: %s', (kind, value) => {
    expect(read(value).kind).toBe(kind)
  })

  it.each(['', 'text', '[]', 'null', '{"a": 1}', '{"measurements"', '{"measurements":[]}'])(
    'a text of no known form is refused: %s',
    (text) => {
      expect(() => read(text, 'given.json')).toThrow(/^given\.json is not/)
    },
  )

  it('a file that JSON parsers would read differently, or that is not text, is refused', () => {
    expect(() => read(`{"measurements":[],"measurements":[{"PCR0":"${PCR0}"}]}`)).toThrow(
      /is not JSON/,
    )
    expect(() => readExpectedFile('image', Buffer.from([0x7b, 0xff, 0x7d]))).toThrow(/^image/)
  })
})

describe('files that add up', () => {
  const digest = 'ef'.repeat(32)
  const expected = { measurements: { PCR0 }, configurations: digest }
  const policyOf = (enclaves: object) => ({ enclaves })
  const addUp = (files: readonly ReturnType<typeof read>[]) => {
    let own = NO_POLICY
    for (const file of files) own = { ...own, ...addExpectedFile(own, file) }
    return own
  }

  it('files add up, each kind in its field, and a later policy takes the place of an earlier one', async () => {
    const release = JSON.stringify({ format: 'affidavit-release/v1' })
    const own = addUp([
      read(policyOf({ ...expected, configurations: '00'.repeat(32) }), 'old.json'),
      read(release, 'release.json'),
      read(PEM, 'root.pem'),
      read({ chain_id: 1, providers: [] }, 'boot.json'),
      read(policyOf(expected), 'policy.json'),
    ])
    expect(own).toMatchObject({ measurements: `PCR0=${PCR0}`, configurations: digest })
    expect(await own.releases[0]?.text()).toBe(release)
    expect(await own.roots[0]?.text()).toBe(PEM)
    expect(await own.configurationFiles[0]?.text()).toBe('{"chain_id":1,"providers":[]}')
  })

  it('a file that is given again takes its own place, and a set of measurements stands once', async () => {
    const other = { PCR0: 'cd'.repeat(48) }
    const own = addUp([read({ PCR0 }), read(other), read(other), read(PEM), read(`${PEM}\n`)])
    expect(own.measurements).toBe(`PCR0=${PCR0}\n\nPCR0=${other.PCR0}`)
    expect(await Promise.all(own.roots.map((file) => file.text()))).toEqual([`${PEM}\n`])
  })

  it('a policy that the client would refuse is not added', () => {
    expect(() => addUp([read(policyOf({ ...expected, more: 1 }))])).toThrow(PolicyFault)
    expect(() => addUp([read(policyOf({ measurements: { PCR0 } }))])).toThrow(/configurations/)
  })
})

describe('the fields of a form', () => {
  const fill = (value: unknown) => fillPolicy(read(value))
  const [one, other] = ['ab'.repeat(48), 'cd'.repeat(48)]

  it('the fields of a form are filled by what the client takes, and by measurements by themselves', async () => {
    const filled = fill({
      enclaves: {
        measurements: [{ PCR0: one, PCR1: other }, { PCR0: other }],
        configurations: ['ef'.repeat(32)],
      },
    })
    expect(filled.measurements).toBe(`PCR0=${one}\nPCR1=${other}\n\nPCR0=${other}`)
    const { expected } = await readGivenPolicy({ ...NO_POLICY, ...filled })
    expect(expected.attestation.measurements).toHaveLength(2)
    expect(expected.configurations).toHaveLength(1)
    for (const alone of [{ PCR0: one }, { Measurements: { HashAlgorithm: 'Sha384', PCR0: one } }])
      expect(fill(alone)).toMatchObject({
        measurements: `PCR0=${one}`,
        releases: [],
        configurations: '',
        rootText: '',
      })
  })

  it('the fields of a form are filled by what a production gateway is held to: releases, keys and roots', async () => {
    const key = encodeHex(releaseKeyOf(SECRET))
    const signed = signRelease(buildRelease({ configuration: 'ef'.repeat(32) }), SECRET)
    const file = {
      releases: [signed],
      releaseKeys: [key],
      releaseSigners: 1,
      roots: ['ef'.repeat(32)],
    }
    const { expected, trust } = await readGivenPolicy({ ...NO_POLICY, ...fill({ enclaves: file }) })
    expect(expected.attestation.releases).toHaveLength(1)
    expect(expected.attestation.roots).toEqual([new Uint8Array(32).fill(0xef)])
    expect(trust?.keys).toHaveLength(1)
    for (const other of [
      { ...file, releaseKeys: ['00'.repeat(32)] },
      { ...file, releaseKeys: undefined },
      { ...file, more: 1 },
    ])
      expect(() => fill({ enclaves: other })).toThrow(PolicyFault)
  })

  it('the providers of a policy fill a field, and a file of measurements leaves it', async () => {
    const { providers } = JSON.parse(readFileSync('docs/provider-policies/nitro.json', 'utf8'))
    const filled = fill({ providers })
    expect(JSON.parse(filled.providers ?? '')).toEqual(providers)
    const { expected } = await readGivenPolicy({ ...NO_POLICY, ...filled })
    expect(expected.providers).toMatchObject([{ kind: 'nitro' }])
    expect(fill({ PCR0: one })).not.toHaveProperty('providers')
    for (const text of ['{', '[]', '{}', `${filled.providers},"enclaves":{}`])
      await expect(readGivenPolicy({ ...NO_POLICY, providers: text })).rejects.toThrow(PolicyFault)
  })

  it('a register is demanded under its name and under its number, and what is none is refused', () => {
    const configurations = ['ef'.repeat(32)]
    const policy = { enclaves: { measurements: { PCR0: one, 2: other }, configurations } }
    expect(fill(policy).measurements).toBe(`PCR2=${other}\nPCR0=${one}`)
    expect(fill({ 0: one, PCR8: other }).measurements).toBe(`PCR0=${one}\nPCR8=${other}`)
    for (const wrong of [
      { PCR0: one, pcr1: other },
      { PCR0: one, PCR32: other },
      { PCR0: one, 0: one },
    ])
      expect(() => fill(wrong)).toThrow(/register/)
  })

  it.each([
    [{ enclaves: { measurements: [] } }],
    [{ enclaves: { measurements: ['PCR0'] } }],
    [{ enclaves: { measurements: [{ PCR0: 'ab', PCR1: 7 }] } }],
    [{ enclaves: { configurations: ['ab'] } }],
    [{ chain_id: 1, providers: [] }],
    [PEM],
  ])('a file without measurements fills no field, and the page says what to do: %j', (value) => {
    expect(() => fill(value)).toThrow(PolicyFault)
  })
})
