import { createHash } from 'node:crypto'
import { Wallet } from 'ethers'
import { expect, it } from 'vitest'
import { isRefused } from '#attestation/evidence/verdict.ts'
import { verifyBundle } from '#attestation/evidence/verify-bundle.ts'
import {
  HEAD_ATTESTATION_CHECKS,
  type HeadAttestationCheckName,
  verifyHeadAttestation,
} from '#attestation/evidence/verify-head-attestation.ts'
import type { Json, JsonObject } from '#attestation/json/value.ts'
import { PolicyError } from '#attestation/nitro/policy.ts'
import { createAttestationVerifier } from '#attestation/nitro/verify-attestation.ts'
import { entryOf } from '#attestation/release/release-list.ts'
import { buildOtherRelease, buildRelease } from '../../support/build-release.ts'
import { MADE_AT } from '../../support/nitro-builder/development-pki.ts'
import { PCR_VALUES, standardChain } from '../../support/nitro-builder/document-builder.ts'
import { otherLastDigit } from '../mutate-json.ts'
import {
  BOOT_CONFIGURATION,
  buildEvidence,
  digestOf,
  documentFor,
  policyFor,
} from './build-evidence.ts'
import {
  ATTESTED_LOG,
  buildHeadAttestation,
  chainWith,
  type HeadAttestationParts,
} from './build-head-attestation.ts'

const valid = buildHeadAttestation()
const policy = policyFor(BOOT_CONFIGURATION)
const attestations = createAttestationVerifier()
const OTHER_HASH = otherLastDigit(valid.block_hash)
const STRANGER_KEY = Buffer.from(
  new Wallet(`0x${'17'.repeat(32)}`).signingKey.publicKey.slice(2),
  'hex',
)

const flipped = Buffer.from(valid.document, 'base64')
flipped[flipped.length - 1] = (flipped.at(-1) ?? 0) ^ 1

/** The report, asked of a chain that has the very block of `valid`. */
const verify = (json: Json, log = ATTESTED_LOG) =>
  verifyHeadAttestation(json, log, policy, { chain: chainWith(valid), attestations })

async function failedOf(
  json: Json,
  log = ATTESTED_LOG,
): Promise<readonly HeadAttestationCheckName[]> {
  const { checks, verdict, facts } = await verify(json, log)
  const failed = checks.filter(({ outcome }) => outcome === 'failed').map(({ name }) => name)
  expect([isRefused(verdict), facts === null]).toEqual([failed.length > 0, failed.length > 0])
  return failed
}

it('an honest head attestation passes every check and gives what it says', async () => {
  const report = await verify(valid)
  expect(report.checks.map(({ name, outcome }) => [name, outcome])).toEqual(
    Object.keys(HEAD_ATTESTATION_CHECKS).map((name) => [name, 'passed']),
  )
  expect(report).toMatchObject({
    verdict: 'verified',
    open: [],
    facts: {
      notary: ATTESTED_LOG.notary,
      size: 7,
      root: new Uint8Array(32).fill(0x5a),
      timestampMs: MADE_AT.getTime() + 1_234,
      blockHash: valid.block_hash,
      notBefore: { number: 1000, hash: valid.block_hash },
    },
  })
  expect(report.facts?.measurements.get(0)).toEqual(new Uint8Array(PCR_VALUES.get(0) ?? []))
})

it('the report of an offline check says what is to be looked up and shows no "not before"', async () => {
  const report = await verifyHeadAttestation(valid, ATTESTED_LOG, policy)
  expect(report).toMatchObject({ verdict: 'verified', facts: { notBefore: null } })
  expect(report.checks.at(-1)).toMatchObject({
    outcome: 'not checked',
    detail: expect.stringContaining(`block 1000 has the hash ${valid.block_hash}`),
  })
})

it('a head attestation is not called verified without expectations', async () => {
  const report = await verifyHeadAttestation(valid, ATTESTED_LOG, { roots: policy.roots ?? [] })
  expect(report).toMatchObject({
    verdict: 'incomplete',
    open: ['measurements', 'expected configuration'],
  })
})

it('expected measurements come from releases, and the release that matched is named', async () => {
  const { measurements: _, ...rest } = policy
  const release = buildRelease()
  const report = await verifyHeadAttestation(valid, ATTESTED_LOG, {
    ...rest,
    releases: [entryOf(release)],
  })
  expect(report).toMatchObject({ verdict: 'verified', facts: { release } })
  const other = { ...rest, releases: [entryOf(buildOtherRelease())] }
  expect(await verifyHeadAttestation(valid, ATTESTED_LOG, other)).toMatchObject({
    verdict: 'not_accepted',
  })
})

it('verifyHeadAttestation takes the head of an empty log', async () => {
  const empty = createHash('sha256').digest('hex')
  expect(await failedOf(buildHeadAttestation({ size: 0, root: empty }))).toEqual([])
})

it('verifyHeadAttestation rejects for a policy that makes no sense', async () => {
  await expect(verifyHeadAttestation(valid, ATTESTED_LOG, { roots: [] })).rejects.toThrow(
    PolicyError,
  )
})

const alterations: Readonly<
  Record<keyof typeof valid, [Json, readonly HeadAttestationCheckName[]]>
> = {
  size: [8, ['head']],
  root: [otherLastDigit(valid.root), ['head']],
  block_number: [1001, []],
  block_hash: [OTHER_HASH, ['block hash', 'block on chain']],
  created_at: [valid.created_at + 1, ['created_at']],
  document: [flipped.toString('base64'), ['attestation document']],
}

it.each(Object.entries(alterations).filter(([name]) => name !== 'block_number'))(
  'a head attestation with another %s fails at the checks for that field',
  async (name, [value, failed]) => {
    expect(await failedOf({ ...valid, [name]: value })).toEqual(failed)
  },
)

it('another block number fails when the chain has another block there', async () => {
  const chain = { ...chainWith(valid), blockHash: OTHER_HASH }
  const report = await verifyHeadAttestation(
    { ...valid, block_number: 999 },
    ATTESTED_LOG,
    policy,
    {
      chain,
    },
  )
  expect(report.checks.filter(({ outcome }) => outcome === 'failed')).toMatchObject([
    { name: 'block on chain' },
  ])
})

it('verifyHeadAttestation does not detect another block number offline', async () => {
  const altered = { ...valid, block_number: 999 }
  const { verdict, facts } = await verifyHeadAttestation(altered, ATTESTED_LOG, policy)
  expect([verdict, facts?.notBefore]).toEqual(['verified', null])
})

it('verifyHeadAttestation does not detect an old block, which merely shows less', async () => {
  const old = { ...buildHeadAttestation({ blockHash: OTHER_HASH }), block_number: 1 }
  const chain = { ...chainWith(old), newestBlock: 1_000_000 }
  expect(await verifyHeadAttestation(old, ATTESTED_LOG, policy, { chain })).toMatchObject({
    verdict: 'verified',
    facts: { notBefore: { number: 1 } },
  })
})

it.each<[string, JsonObject]>([
  ['another log', { notary: otherLastDigit(ATTESTED_LOG.notary) }],
  ['a malformed address', { notary: 'me' }],
])('a head attestation fails as an attestation of %s', async (_, { notary }) => {
  expect(await failedOf(valid, { ...ATTESTED_LOG, notary: String(notary) })).toEqual([
    'attestation key',
    'head',
  ])
})

it('a head attestation fails with another boot configuration', async () => {
  const bootConfiguration = { ...BOOT_CONFIGURATION, ca_sha256: 'cb'.repeat(32) }
  expect(await failedOf(valid, { ...ATTESTED_LOG, bootConfiguration })).toEqual([
    'head',
    'expected configuration',
  ])
})

it.each<[string, Json, JsonObject]>([
  ['an attestation of another form', { ...valid, size: null }, BOOT_CONFIGURATION],
  ['nothing', null, BOOT_CONFIGURATION],
  ['a log without a configuration', valid, {}],
])(
  'verifyHeadAttestation makes no other check once the form is wrong: %s',
  async (_, json, bootConfiguration) => {
    const report = await verify(json, { ...ATTESTED_LOG, bootConfiguration })
    const [format, ...others] = report.checks
    expect(format).toMatchObject({ name: 'format', outcome: 'failed' })
    expect(new Set(others.map(({ outcome }) => outcome))).toEqual(new Set(['not checked']))
    expect(report).toMatchObject({ verdict: 'invalid', facts: null })
  },
)

it.each<[string, HeadAttestationParts, readonly HeadAttestationCheckName[]]>([
  ['of another key', { fields: { public_key: STRANGER_KEY } }, ['attestation key']],
  ['of no key', { fields: { public_key: null } }, ['attestation key']],
  ['of no head', { fields: { user_data: null } }, ['head']],
  [
    'of the boot configuration alone, as records carry it',
    { fields: { user_data: Buffer.from(digestOf(BOOT_CONFIGURATION)) } },
    ['head'],
  ],
  ['of no block', { fields: { nonce: null } }, ['block hash']],
  ['of a block’s hash and more', { fields: { nonce: Buffer.alloc(33, 0xb1) } }, ['block hash']],
  ['of another format', { statement: { format: 'affidavit-evidence-bundle' } }, ['head']],
  ['of another version', { statement: { version: 2 } }, ['head']],
  ['of another configuration', { statement: { boot_configuration: '00'.repeat(32) } }, ['head']],
  ['of another log', { statement: { notary: otherLastDigit(ATTESTED_LOG.notary) } }, ['head']],
  [
    'of other code',
    { fields: { pcrs: new Map([...PCR_VALUES, [0, Buffer.alloc(48, 1)]]) } },
    ['measurements'],
  ],
  [
    'made after its certificates ended',
    { timestampMs: MADE_AT.getTime() + 3 * 3_600_000 },
    ['attestation document'],
  ],
])('verifyHeadAttestation fails a document %s', async (_, parts, failed) => {
  expect(await failedOf(buildHeadAttestation(parts))).toEqual(failed)
})

it('a head attestation fails when its document is no document', async () => {
  expect(await failedOf({ ...valid, document: 'AAAA' })).toEqual([
    'attestation document',
    'attestation key',
    'head',
    'block hash',
    'created_at',
  ])
})

it('verifyHeadAttestation compares no measurements of a document that is not genuine', async () => {
  const { checks } = await verify({ ...valid, document: flipped.toString('base64') })
  expect(checks).toContainEqual({
    name: 'measurements',
    outcome: 'not checked',
    detail: expect.stringContaining('the document is not valid: signature_invalid: '),
  })
})

it('a genuine document of a development root fails a head attestation under AWS’s root', async () => {
  const { roots: _, ...others } = policy
  const { checks } = await verifyHeadAttestation(valid, ATTESTED_LOG, others)
  expect(checks.filter(({ outcome }) => outcome === 'failed')).toMatchObject([
    { name: 'attestation document', detail: expect.stringContaining('root_untrusted') },
  ])
  expect(standardChain.rootSha256).toEqual(policy.roots?.[0])
})

it('a record that carries a head attestation as its own document fails', async () => {
  const { bundle } = buildEvidence({ stored: { attestation: valid.document } })
  const { checks } = await verifyBundle(bundle, policy)
  expect(checks.filter(({ outcome }) => outcome === 'failed')).toMatchObject([
    { name: 'boot configuration' },
  ])
})

it('a caller’s own fresh document over a block’s hash fails as a head attestation', async () => {
  const nonce = Buffer.from(valid.block_hash.slice(2), 'hex')
  const document = documentFor(BOOT_CONFIGURATION, { nonce, timestamp: valid.created_at * 1000 })
  expect(await failedOf({ ...valid, document })).toEqual(['head'])
})

it('any mix of two head attestations fails, and each attestation as it was is verified', async () => {
  const other = buildHeadAttestation({
    size: 8,
    root: otherLastDigit(valid.root),
    blockHash: OTHER_HASH,
    timestampMs: MADE_AT.getTime() + 2_234,
  })
  const names = ['size', 'root', 'block_hash', 'created_at', 'document'] as const
  for (let chosen = 0; chosen < 2 ** names.length; chosen++) {
    const mixed = { ...valid }
    for (const [bit, name] of names.entries())
      if (chosen & (1 << bit)) Object.assign(mixed, { [name]: other[name] })
    const isWhole = chosen === 0 || chosen === 2 ** names.length - 1
    const { verdict } = await verifyHeadAttestation(mixed, ATTESTED_LOG, policy, { attestations })
    expect(verdict).toBe(isWhole ? 'verified' : 'invalid')
  }
})
