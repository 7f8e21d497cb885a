import { describe, expect, it } from 'vitest'
import { encodeHex } from '#attestation/bytes.ts'
import { verifyBundle } from '#attestation/evidence/verify-bundle.ts'
import { verifyHeadAttestation } from '#attestation/evidence/verify-head-attestation.ts'
import { PolicyError } from '#attestation/nitro/policy.ts'
import { createAttestationVerifier } from '#attestation/nitro/verify-attestation.ts'
import { entryOf } from '#attestation/release/release-list.ts'
import { buildRelease } from '../../support/build-release.ts'
import { buildEvidence } from './build-evidence.ts'
import { ATTESTED_LOG, buildHeadAttestation } from './build-head-attestation.ts'

const { bundle, policy, chain } = buildEvidence()
const head = buildHeadAttestation()
const [set = new Map<number, Uint8Array>()] = policy.measurements ?? []
const [digest = new Uint8Array()] = policy.configurations ?? []
const release = entryOf(buildRelease())
const bytes = new Uint8Array(48).fill(1)

/** Calls as a browser makes them: nothing but what runs looks at their types. */
const untyped = {
  verifyBundle: (demanded: unknown, context?: unknown) =>
    verifyBundle(bundle, demanded as typeof policy, context as object),
  verifyHeadAttestation: (demanded: unknown, context?: unknown) =>
    verifyHeadAttestation(head, ATTESTED_LOG, demanded as typeof policy, context as object),
}

/** What no expectation is, by the member of the policy that the message must name. */
const POLICIES: readonly (readonly [string, string, unknown])[] = [
  ["measurements of 'any'", 'policy.measurements', { measurements: 'any' }],
  ['measurements of null', 'policy.measurements', { measurements: null }],
  [
    'a Map of nothing beside a good one',
    'policy.measurements.1',
    { measurements: [set, new Map()] },
  ],
  ['a hole in the list', 'policy.measurements.0', { measurements: new Array(1) }],
  ['a measurement in hex', 'PCR0', { measurements: [new Map([[0, encodeHex(bytes)]])] }],
  ["configurations of 'any'", 'policy.configurations', { configurations: 'any' }],
  ['a configuration in hex', 'policy.configurations.0', { configurations: [encodeHex(digest)] }],
  [
    'what only has a method some',
    'policy.configurations',
    { configurations: { some: () => true, length: 1 } },
  ],
  ['a digest of 31 bytes', 'policy.configurations.0', { configurations: [digest.slice(1)] }],
  ["releases of 'any'", 'policy.releases', { releases: 'any' }],
  ['a release that is no entry', 'policy.releases.0', { releases: [release.release] }],
  ['one outcome in no list', 'policy.outcomes', { outcomes: 'client_disconnected' }],
  ['an outcome that there is not', 'policy.outcomes.0', { outcomes: ['cut'] }],
  ['no root', 'policy.roots', { roots: [] }],
  ['a root in hex', 'policy.roots.0', { roots: ['00'.repeat(32)] }],
  [
    'a revoked serial in hex',
    'policy.revoked.0.serial',
    { revoked: [{ issuer: bytes, serial: '01' }] },
  ],
  [
    'a revoked certificate without serial',
    'policy.revoked.0.serial',
    { revoked: [{ issuer: bytes }] },
  ],
  ['a text for allowDebug', 'policy.allowDebug', { allowDebug: 'false' }],
  ['no confirmations', 'policy.confirmationsMin', { confirmationsMin: 0 }],
  ['confirmations that are no number', 'policy.confirmationsMin', { confirmationsMin: Number.NaN }],
  ['the chain in the policy', 'without a member chain', { chain }],
  ['a misspelt member', 'without a member configuration', { configuration: [digest] }],
  ["another mode, which is the document's", 'without a member mode', { mode: 'current' }],
]

/** The same of what is given beside the policy. */
const CONTEXTS: readonly (readonly [string, string, unknown])[] = [
  ['null', 'context', null],
  ['what the chain says in no member', 'without a member chainId', chain],
  ['a chain of null', 'context.chain', { chain: null }],
  [
    'a chain without a hash',
    'context.chain.blockHash',
    { chain: { ...chain, blockHash: undefined } },
  ],
  [
    'a hash without 0x',
    'context.chain.blockHash',
    { chain: { ...chain, blockHash: chain.blockHash?.slice(2) } },
  ],
  ['a chain id in hex', 'context.chain.chainId', { chain: { ...chain, chainId: '0x7a69' } }],
  [
    'a newest block as text',
    'context.chain.newestBlock',
    { chain: { ...chain, newestBlock: 'latest' } },
  ],
  [
    "a provider's block without a time",
    'context.chain.providerBlock.timestamp',
    { chain: { ...chain, providerBlock: { hash: chain.blockHash } } },
  ],
  [
    "a provider's block as its hash",
    'context.chain.providerBlock',
    { chain: { ...chain, providerBlock: chain.blockHash } },
  ],
  [
    'confirmations in the chain',
    'without a member confirmations',
    { chain: { ...chain, confirmations: 9 } },
  ],
  ['a verifier that is a function', 'context.attestations', { attestations: () => {} }],
  ['a misspelt member', 'without a member verifier', { verifier: createAttestationVerifier() }],
]

describe.each(Object.entries(untyped))('%s', (_, verify) => {
  it.each(POLICIES)(
    'a policy with %s is refused, and the message contains "%s"',
    async (_, named, members) => {
      const refusal = verify({ ...policy, ...(members as object) })
      await expect(refusal).rejects.toThrow(PolicyError)
      await expect(refusal).rejects.toThrow(named)
    },
  )

  it.each([undefined, null, 'any', 7, [], new Map(Object.entries(policy))])(
    'the value %s is refused as a policy',
    async (none) => {
      await expect(verify(none)).rejects.toThrow(PolicyError)
    },
  )

  it.each(CONTEXTS)(
    'a context with %s is refused, and the message contains "%s"',
    async (_, named, context) => {
      const refusal = verify(policy, context)
      await expect(refusal).rejects.toThrow(PolicyError)
      await expect(refusal).rejects.toThrow(named)
    },
  )

  it('each member of a policy is taken in its form, and an undefined member counts as left out', async () => {
    const whole = {
      ...policy,
      releases: [release, release],
      revoked: [],
      allowDebug: true,
      confirmationsMin: 1,
      outcomes: ['upstream_error'],
    }
    expect((await verify(whole, { attestations: createAttestationVerifier() })).verdict).toBe(
      'verified',
    )
    const { measurements, configurations, roots } = policy
    const unset = {
      measurements,
      configurations,
      roots,
      releases: undefined,
      allowDebug: undefined,
    }
    expect((await verify(unset, { chain: undefined })).verdict).toBe('verified')
  })
})

it('verifyBundle refuses the policy before it looks at the bundle', async () => {
  await expect(verifyBundle(null, { roots: [] })).rejects.toThrow(PolicyError)
})

it('verifyBundle takes what a chain says in either case', async () => {
  const blockHash = `0x${String(chain.blockHash).slice(2).toUpperCase()}`
  const report = await verifyBundle(bundle, policy, { chain: { ...chain, blockHash } })
  expect(report).toMatchObject({
    verdict: 'verified',
    facts: { anchoredIn: { hash: chain.blockHash } },
  })
})
