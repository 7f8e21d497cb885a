import canonicalize from 'canonicalize'
import fc from 'fast-check'
import { expect, it } from 'vitest'
import { decodeBase64, decodeHex, encodeBase64, encodeHex } from '#attestation/bytes.ts'
import type { EvidenceBundle } from '#attestation/evidence/bundle.ts'
import type { BundleCheckName } from '#attestation/evidence/bundle-checks.ts'
import type { BundlePolicy } from '#attestation/evidence/policy.ts'
import { verifyBundle } from '#attestation/evidence/verify-bundle.ts'
import type { Json } from '#attestation/json/value.ts'
import { entryOf } from '#attestation/release/release-list.ts'
import { buildOtherRelease, buildRelease } from '../../support/build-release.ts'
import { MADE_AT } from '../../support/nitro-builder/development-pki.ts'
import { PCR_VALUES } from '../../support/nitro-builder/document-builder.ts'
import { NOTARY } from '../build-record.ts'
import { mutatedAt, otherLastDigit, replaceAt } from '../mutate-json.ts'
import {
  anchoredEvent,
  BOOT_CONFIGURATION,
  buildEvidence,
  digestOf,
  documentFor,
  type EvidenceParts,
  FINISHED_AT,
} from './build-evidence.ts'
import { detailOf, failedOf, namesOf } from './read-report.ts'

const { bundle, policy, chain } = buildEvidence()
const { measurements: _, ...withoutMeasurements } = policy

it('a bundle verifies offline, and the report leaves open whether the chain has its block', async () => {
  const report = await verifyBundle(bundle, policy)
  expect(report).toMatchObject({ verdict: 'verified', open: [], facts: { anchoredIn: null } })
  expect(namesOf(report, 'not checked')).toEqual(['block on chain'])
  expect(detailOf(report, 'block on chain')).toContain(bundle.block?.hash)
})

it('verifyBundle gives the facts that were established', async () => {
  const { facts } = await verifyBundle(bundle, policy, { chain })
  const block = {
    number: 21_000_000,
    hash: bundle.block?.hash,
    timestamp: Math.ceil(FINISHED_AT / 1000 + 12),
  }
  expect(facts).toEqual({
    hash: bundle.record.hash,
    notary: NOTARY.address.toLowerCase(),
    index: 5,
    outcome: 'complete',
    provider: { name: 'demo', origin: 'https://provider.example' },
    model: { requested: 'demo/echo', returned: 'demo/echo-2025' },
    finishedAt: Math.floor(FINISHED_AT / 1000),
    measurements: new Map([...PCR_VALUES].map(([index, pcr]) => [index, new Uint8Array(pcr)])),
    release: null,
    matchedRegisters: [0, 1, 2],
    isDebugMode: false,
    configuration: new Uint8Array(digestOf(BOOT_CONFIGURATION)),
    block,
    anchoredIn: block,
    providerEvidence: null,
  })
})

it('verifyBundle takes expected measurements from releases and names the release that matched', async () => {
  const release = buildRelease()
  const releases = [entryOf(buildOtherRelease()), entryOf(release)]
  const report = await verifyBundle(bundle, { ...withoutMeasurements, releases })
  expect(report).toMatchObject({ verdict: 'verified', facts: { release } })
  expect(detailOf(report, 'measurements')).toBe(`release 1.4.0 (commit ${release.git_commit})`)
})

it.each([
  [undefined, 'does not say why'],
  ['not_mined', 'was in no block'],
  ['not_read', 'did not read the block in time'],
  ['not_readable', 'cannot read the block'],
] as const)(
  'a bundle without a block is told with why, and the transaction to look up: %s',
  async (reason, words) => {
    const transaction = bundle.record.tx_hash
    const no_block = reason === undefined ? {} : { no_block: { reason, transaction } }
    const { checks } = await verifyBundle({ ...bundle, block: null, ...no_block }, policy)
    const { outcome, detail } = checks.find(({ name }) => name === 'block header') ?? {}
    expect(outcome).toBe('not checked')
    expect(detail).toContain(words)
    expect(detail).toContain(transaction)
  },
)

it('verifyBundle asks for as many confirmations as the policy says', async () => {
  expect(await failedOf(bundle, { ...policy, confirmationsMin: 10 })).toEqual([])
  const few = await verifyBundle(bundle, { ...policy, confirmationsMin: 11 }, { chain })
  expect(few).toMatchObject({ verdict: 'incomplete', open: ['block on chain'] })
})

it('a transaction that anchored the head again passes, and the report says in the place of which', async () => {
  const { tx_hash: mined } = bundle.record
  const lost = otherLastDigit(mined)
  const record = { ...bundle.record, tx_hash: lost, reanchored: [`0x${'cd'.repeat(32)}`, mined] }
  const report = await verifyBundle({ ...bundle, record }, policy)
  expect(namesOf(report, 'failed')).toEqual([])
  expect(detailOf(report, 'transaction hash')).toContain(
    `reanchored, 2 of 2, in the place of tx_hash ${lost}`,
  )
  const neither = { ...record, reanchored: record.reanchored.map(otherLastDigit) }
  expect(await failedOf({ ...bundle, record: neither })).toEqual(['transaction hash'])
})

const { log } = bundle.record
const digest = digestOf(BOOT_CONFIGURATION)
const publicKey = decodeHex(NOTARY.signingKey.publicKey).slice(1)
const otherContract = otherLastDigit(log.contract)

it.each<[string, EvidenceParts, BundleCheckName, RegExp]>([
  ['an anchor on another chain', { anchor: { chainId: 31_338 } }, 'anchor', /on chain 31337/],
  [
    'an anchor to another contract',
    { anchor: { contract: otherContract } },
    'anchor',
    /to the contract/,
  ],
  ['an anchor of another size', { anchor: { size: log.size + 1 } }, 'anchor', /of size 9/],
  [
    'an anchor of another root',
    { anchor: { root: otherEnd(decodeHex(log.root)) } },
    'anchor',
    /with the root/,
  ],
  [
    'an anchor with another signature',
    { anchor: { signature: otherEnd(decodeHex(log.signature)) } },
    'anchor',
    /the head's signature/,
  ],
  [
    'the event of another contract',
    { events: [{ ...anchoredEvent(log), address: otherContract }] },
    'anchor outcome',
    /event of the contract/,
  ],
  [
    'the event of another head',
    { events: [anchoredEvent({ ...log, root: otherLastDigit(log.root) })] },
    'anchor outcome',
    /event of the contract/,
  ],
  ['a transaction that reverted', { status: 0 }, 'anchor outcome', /to have succeeded/],
  [
    'the document of another configuration',
    { document: { user_data: Buffer.from(otherEnd(digest)) } },
    'boot configuration',
    /digest of the boot configuration/,
  ],
  [
    'a configuration for another chain',
    { boot: { ...BOOT_CONFIGURATION, chain_id: 31_338 } },
    'boot configuration',
    /log's chain and contract/,
  ],
  [
    'a configuration for another contract',
    { boot: { ...BOOT_CONFIGURATION, contract: otherContract } },
    'boot configuration',
    /log's chain and contract/,
  ],
  [
    'the document of another key',
    { document: { public_key: Buffer.from(otherEnd(publicKey)) } },
    'attestation key',
    /./,
  ],
])('a bundle with %s fails at that check alone', async (_, parts, name, detail) => {
  const built = buildEvidence(parts)
  const report = await verifyBundle(built.bundle, built.policy, { chain: built.chain })
  expect(namesOf(report, 'failed')).toEqual([name])
  expect(detailOf(report, name)).toMatch(detail)
})

const [set = new Map<number, Uint8Array>()] = policy.measurements ?? []
it.each<[string, BundlePolicy, BundleCheckName]>([
  ['configuration', { configurations: [otherEnd(digest)] }, 'expected configuration'],
  [
    'configuration of its release',
    {
      measurements: [],
      releases: [
        entryOf(
          buildRelease({ configuration: otherLastDigit(Buffer.from(digest).toString('hex')) }),
        ),
      ],
    },
    'expected configuration',
  ],
  [
    'measurement',
    { measurements: [new Map([...set, [2, otherEnd(set.get(2) ?? new Uint8Array(48))]])] },
    'measurements',
  ],
  ['root', { roots: (policy.roots ?? []).map(otherEnd) }, 'attestation document'],
])('a bundle fails at its check when another %s is expected', async (_, expected, name) => {
  expect(await failedOf(bundle, { ...policy, ...expected })).toEqual([name])
})

/** Other bytes, in their last bit alone. */
function otherEnd(bytes: Uint8Array): Uint8Array {
  return new Uint8Array(bytes).with(-1, (bytes.at(-1) ?? 0) ^ 1)
}

it('verifyBundle never verifies a bundle in which anything was changed', async () => {
  await fc.assert(
    fc.asyncProperty(mutatedAt(bundle, []), async (changed) => {
      fc.pre(canonicalize(changed) !== canonicalize(bundle) && !isBlockGone(changed))
      expect((await verifyBundle(changed, policy, { chain })).verdict).toBe('invalid')
    }),
    { numRuns: 60 },
  )
})

it('verifyBundle reports on any JSON value and never rejects', async () => {
  await fc.assert(
    fc.asyncProperty(fc.jsonValue(), async (value) => {
      const report = await verifyBundle(value as Json, policy)
      expect(report).toMatchObject({ verdict: 'invalid', redacted: [], facts: null })
      expect(namesOf(report, 'failed')).toEqual(['format'])
      expect(namesOf(report, 'passed')).toEqual([])
    }),
    { numRuns: 20 },
  )
})

it('the report names the member that is not in its form', async () => {
  const report = await verifyBundle(replaceAt(bundle, ['block', 'number'], '7'), policy)
  expect(detailOf(report, 'format')).toMatch(/block.number/)
})

it('verifyBundle does not detect another valid document of the same enclave in place of its own', async () => {
  const attestation = documentFor(BOOT_CONFIGURATION, { timestamp: MADE_AT.getTime() + 30_000 })
  expect(await failedOf(replaceAt(bundle, ['record', 'attestation'], attestation))).toEqual([])
})

it('verifyBundle does not detect the document’s own signature in its second form, which P-384 allows', async () => {
  const document = decodeBase64(bundle.record.attestation)
  const s = BigInt(`0x${encodeHex(document.subarray(-48))}`)
  const second = decodeHex((P384_ORDER - s).toString(16).padStart(96, '0'))
  const changed = encodeBase64(Uint8Array.from([...document.subarray(0, -48), ...second]))
  expect(await failedOf(replaceAt(bundle, ['record', 'attestation'], changed))).toEqual([])
})

it('verifyBundle does not detect offline that a block was made up around a signed transaction', async () => {
  const report = await verifyBundle(
    buildEvidence({ header: { stateRoot: `0x${'99'.repeat(32)}` } }).bundle,
    policy,
  )
  expect(report).toMatchObject({ verdict: 'verified', facts: { anchoredIn: null } })
})

it('verifyBundle does not detect that the notary signed another history of the same log', async () => {
  const parts: EvidenceParts = { record: { receipt: { started_at: 1 } } }
  const [one, two] = [buildEvidence(), buildEvidence(parts)]
  expect(one.bundle.record.receipt.index).toBe(two.bundle.record.receipt.index)
  for (const built of [one, two])
    expect((await verifyBundle(built.bundle, built.policy, { chain: built.chain })).verdict).toBe(
      'verified',
    )
})

const P384_ORDER =
  0xffffffffffffffffffffffffffffffffffffffffffffffffc7634d81f4372ddf581a0db248b0a77aecec196accc52973n

/** Without its block a bundle is one that was made before it was mined: open, not wrong. */
function isBlockGone(changed: Json): boolean {
  return (changed as Partial<EvidenceBundle> | null)?.block === null
}
