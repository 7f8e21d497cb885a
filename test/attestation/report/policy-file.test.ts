import { expect, it } from 'vitest'
import { decodeHex, encodeHex, sha256 } from '#attestation/bytes.ts'
import { digestBootConfiguration } from '#attestation/evidence/boot-configuration.ts'
import { PolicyError } from '#attestation/nitro/policy.ts'
import { releaseKeyOf } from '#attestation/release/release-signatures.ts'
import { signRelease, signReleaseList } from '#attestation/release/verify-release.ts'
import {
  type EnclavesPolicy,
  POLICY_BYTES_MAX,
  parsePolicy,
  readEnclavesPolicy,
  readPolicyFile,
} from '#attestation/report/policy-file.ts'
import { buildEntry, buildRelease } from '../../support/build-release.ts'

const SECRET = new Uint8Array(32).fill(7)
const KEY = encodeHex(releaseKeyOf(SECRET))
const OTHER_KEY = encodeHex(releaseKeyOf(new Uint8Array(32).fill(8)))
const CONFIGURATION = 'c0'.repeat(32)
const configured = buildRelease({ configuration: CONFIGURATION })
const signed = signRelease(configured, SECRET)
const PCRS = { PCR0: 'a0'.repeat(48), PCR1: 'a1'.repeat(48) }
const GOOD = { measurements: PCRS, configurations: CONFIGURATION }
const boot = { chain_id: 1, contract: `0x${'11'.repeat(20)}`, providers: [] }

const read = (enclaves: unknown) =>
  readEnclavesPolicy({ enclaves: enclaves as EnclavesPolicy }) ?? {}

it('the enclaves of a policy take releases that a trusted key signed: parsed, as text, in a list', () => {
  const list = signReleaseList(
    { issued_at: '2026-03-01T00:00:00Z', releases: [buildEntry({ release: configured })] },
    SECRET,
  )
  for (const releases of [signed, JSON.stringify(signed), [signed], list])
    expect(read({ releases, releaseKeys: KEY }).releases?.map(({ release }) => release)).toEqual([
      configured,
    ])
})

it('the enclaves of a policy take measurements in hex by name or in bytes by index', () => {
  const configurations = CONFIGURATION
  const expected = new Map([
    [0, decodeHex(PCRS.PCR0)],
    [1, decodeHex(PCRS.PCR1)],
  ])
  expect(read({ measurements: PCRS, configurations }).measurements).toEqual([expected])
  expect(read({ measurements: [expected], configurations }).measurements).toEqual([expected])
})

it('the enclaves of a policy take configurations by digest, in bytes or as they are', () => {
  const digest = digestBootConfiguration(boot)
  const hex = encodeHex(digest)
  for (const configurations of [hex, hex.toUpperCase(), digest, boot, [boot], JSON.stringify(boot)])
    expect(read({ measurements: PCRS, configurations }).configurations).toEqual([digest])
})

it('the enclaves of a policy take roots in PEM or by their fingerprint', () => {
  const fingerprint = 'ab'.repeat(32)
  for (const roots of [fingerprint, [decodeHex(fingerprint)]])
    expect(read({ ...GOOD, roots }).roots).toEqual([decodeHex(fingerprint)])
  const der = Buffer.from('a certificate is pinned, not looked at')
  const pem = `-----BEGIN CERTIFICATE-----\n${der.toString('base64')}\n-----END CERTIFICATE-----\n`
  expect(read({ ...GOOD, roots: [pem, fingerprint] }).roots).toEqual([
    sha256(der),
    decodeHex(fingerprint),
  ])
})

it.each<[string, unknown]>([
  ['nothing', {}],
  ['no object', 'any'],
  ["'any' measurements", { ...GOOD, measurements: 'any' }],
  ['no set of measurements', { ...GOOD, measurements: [] }],
  ['a set without members', { ...GOOD, measurements: {} }],
  ['a measurement that is too short', { ...GOOD, measurements: { PCR0: 'a0' } }],
  ['a register that there is not', { ...GOOD, measurements: { PCR32: PCRS.PCR0 } }],
  ['measurements without a configuration', { measurements: PCRS }],
  ['measurements that name no image', { ...GOOD, measurements: [PCRS, { PCR4: PCRS.PCR0 }] }],
  ['a Map that names no image', { ...GOOD, measurements: new Map([[1, decodeHex(PCRS.PCR1)]]) }],
  ['two measurements of a register', { ...GOOD, measurements: { ...PCRS, 0: PCRS.PCR1 } }],
  ['a configuration without measurements', { configurations: CONFIGURATION }],
  ['a digest that is too short', { ...GOOD, configurations: 'c0' }],
  ['a malformed configuration', { ...GOOD, configurations: { providers: [] } }],
  ['a release without a key', { releases: signed }],
  ['a key without a release', { releaseKeys: KEY }],
  ['a release of another key', { releases: signed, releaseKeys: OTHER_KEY }],
  ['two signers of one', { releases: signed, releaseKeys: [KEY, OTHER_KEY], releaseSigners: 2 }],
  [
    'an altered release',
    { releases: { ...signed, release: { ...configured, version: '9' } }, releaseKeys: KEY },
  ],
  [
    'a release without its configuration',
    { releases: signRelease(buildRelease(), SECRET), releaseKeys: KEY },
  ],
  [
    'a list of none',
    {
      releases: signReleaseList({ issued_at: '2026-03-01T00:00:00Z', releases: [] }, SECRET),
      releaseKeys: KEY,
    },
  ],
  ['a name that is misspelt', { measurements: PCRS, configuration: CONFIGURATION }],
  ['a malformed root', { ...GOOD, roots: 'root.pem' }],
  ['nothing for a root', { ...GOOD, roots: null }],
  ['no root', { ...GOOD, roots: [] }],
])('enclaves of a policy that accept anything or are malformed are refused: %s', (_, enclaves) => {
  expect(() => read(enclaves)).toThrow(PolicyError)
})

it('a policy is not read from what other code has put into Object.prototype', () => {
  const prototype = Object.prototype as unknown as Record<string, unknown>
  prototype.measurements = PCRS
  try {
    expect(() => read({ configurations: CONFIGURATION })).toThrow(PolicyError)
  } finally {
    delete prototype.measurements
  }
})

it('the text of a policy is read strictly', () => {
  const parse = (text: string) => () => parsePolicy(new TextEncoder().encode(text))
  expect(parse(JSON.stringify({ enclaves: GOOD }))()).toEqual({ enclaves: GOOD })
  for (const [text, reason] of [
    ['', 'policy: '],
    ['[]', 'expected the policy to be an object'],
    ['{}', 'expected the policy to have enclaves, providers or both'],
    ['{"enclaves":{},"enclaves":{}}', 'policy: '],
    ['{"measurements":[]}', 'expected the policy without measurements'],
    [`{"enclaves":"${'a'.repeat(POLICY_BYTES_MAX)}"}`, 'at most 8388608 bytes'],
  ] as const)
    expect(parse(text)).toThrow(reason)
})

it('a fault of a provider is named by its place', async () => {
  const reading = readPolicyFile({ enclaves: GOOD, providers: [{ version: 1, kind: 'other' }] })
  await expect(reading).rejects.toThrow(/^providers\.0: .*kind/)
})
