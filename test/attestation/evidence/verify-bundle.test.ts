import canonicalize from 'canonicalize'
import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { decodeBase64, decodeHex, encodeBase64, encodeHex } from '#attestation/bytes.ts'
import type { EvidenceBundle } from '#attestation/evidence/bundle.ts'
import type { BundleCheckName } from '#attestation/evidence/bundle-checks.ts'
import type { BundlePolicy } from '#attestation/evidence/policy.ts'
import { verifyBundle } from '#attestation/evidence/verify-bundle.ts'
import type { Json } from '#attestation/json/value.ts'
import { createAttestationVerifier } from '#attestation/nitro/verify-attestation.ts'
import { entryOf, type ReleaseEntry } from '#attestation/release/release-list.ts'
import { formatTime } from '#attestation/release/release-signatures.ts'
import { buildEntry, buildOtherRelease, buildRelease } from '../../support/build-release.ts'
import { MADE_AT } from '../../support/nitro-builder/development-pki.ts'
import { PCR_VALUES } from '../../support/nitro-builder/document-builder.ts'
import { NOTARY } from '../build-record.ts'
import { mutatedAt, replaceAt } from '../mutate-json.ts'
import {
  BOOT_CONFIGURATION,
  buildEvidence,
  digestOf,
  documentFor,
  type EvidenceParts,
  FINISHED_AT,
} from './build-evidence.ts'
import { detailOf, failedOf, namesOf } from './read-report.ts'
import {
  FIRST_BUNDLE,
  FIRST_EXPECTED,
  REANCHORED_BUNDLE,
  SECOND_BUNDLE,
  SECOND_EXPECTED,
} from './vectors.ts'

const { bundle, policy, chain } = buildEvidence()
const { measurements: _, ...withoutMeasurements } = policy
const REVOKED = { at: '2026-01-01T00:00:00Z', reason: 'it signs anything' }

describe('verifyBundle', () => {
  it('the published vector, whose anchor a real chain mined, is verified', async () => {
    const report = await verifyBundle(FIRST_BUNDLE, FIRST_EXPECTED.policy, {
      chain: FIRST_EXPECTED.chain,
    })
    expect(namesOf(report, 'failed')).toEqual([])
    expect(report).toMatchObject({ verdict: 'verified', open: [] })
    expect(report.facts?.anchoredIn?.hash).toBe(FIRST_EXPECTED.chain.blockHash)
  })

  it.each([
    ['of version 2', SECOND_BUNDLE, 'Keccak-256 0x'],
    ['of a head that was anchored again', REANCHORED_BUNDLE, 'reanchored, 2 of 2'],
  ])('the published vector %s is verified', async (_, json, detail) => {
    const { policy, chain } = SECOND_EXPECTED
    const report = await verifyBundle(json, policy, { chain })
    expect(report).toMatchObject({ verdict: 'verified', open: [] })
    expect(report.checks.every(({ outcome }) => outcome === 'passed')).toBe(true)
    expect(detailOf(report, 'transaction hash')).toContain(detail)
  })

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

  describe('expecting a release that was signed with its configuration', () => {
    const { configurations: _, ...open } = withoutMeasurements
    const signedWith = (boot: Json) => [
      entryOf(buildOtherRelease({ configuration: 'ab'.repeat(32) })),
      entryOf(
        buildRelease({ configuration: encodeHex(digestOf(boot as typeof BOOT_CONFIGURATION)) }),
      ),
    ]
    const ours = signedWith(BOOT_CONFIGURATION)
    const other = signedWith({ ...BOOT_CONFIGURATION, ca_sha256: 'cb'.repeat(32) })

    it('a release that was signed with its configuration needs no other expected configuration', async () => {
      expect(await verifyBundle(bundle, { ...open, releases: ours })).toMatchObject({
        verdict: 'verified',
      })
    })

    it('an enclave that was booted with another configuration than its release’s fails', async () => {
      const report = await verifyBundle(bundle, { ...open, releases: other })
      expect(namesOf(report, 'failed')).toEqual(['expected configuration'])
      const both = await verifyBundle(bundle, { ...policy, measurements: [], releases: other })
      expect(namesOf(both, 'failed')).toEqual(['expected configuration'])
    })

    it('configurations that the policy names are still demanded beside a release’s own', async () => {
      const named = { ...open, releases: ours, configurations: [new Uint8Array(32)] }
      expect(namesOf(await verifyBundle(bundle, named), 'failed')).toEqual([
        'expected configuration',
      ])
    })

    it('no configuration is taken from a release that did not match or for a release that names none', async () => {
      const report = await verifyBundle(bundle, {
        ...open,
        releases: [ours[0], entryOf(buildRelease())].flatMap((one) => one ?? []),
      })
      expect(report).toMatchObject({ verdict: 'consistent', open: ['expected configuration'] })
    })
  })

  it.each<[string, string, readonly ReleaseEntry[]]>([
    ['of another release', 'measurement_mismatch', [entryOf(buildOtherRelease())]],
    ['of a release that was revoked', 'release_revoked', [buildEntry({ revoked: REVOKED })]],
    [
      'made too late',
      'release_expired',
      [buildEntry({ accepted_until: formatTime(MADE_AT.getTime()) })],
    ],
    [
      'made too early',
      'release_not_yet',
      [buildEntry({ accepted_from: formatTime(MADE_AT.getTime() + 1000) })],
    ],
    ['under a list that accepts none', 'measurements_not_given', []],
  ])('a document %s fails at its measurements alone, for %s', async (_, code, releases) => {
    const report = await verifyBundle(bundle, { ...withoutMeasurements, releases })
    expect(namesOf(report, 'failed')).toEqual(['measurements'])
    expect(detailOf(report, 'measurements')).toMatch(new RegExp(`^${code}: `))
    expect(report.facts).toBeNull()
  })

  it('verifyBundle verifies records at every place of logs and blocks of many sizes', async () => {
    for (const [before, after] of [
      [0, 0],
      [0, 1],
      [6, 0],
      [127, 3],
      [128, 1],
      [200, 60],
    ] as const) {
      const built = buildEvidence({
        record: { before: after, after: before },
        neighbours: [before, after],
      })
      expect((await verifyBundle(built.bundle, built.policy, { chain: built.chain })).verdict).toBe(
        'verified',
      )
    }
  })

  it('verifyBundle takes a verifier that remembers certificate chains', async () => {
    const attestations = createAttestationVerifier()
    for (let round = 0; round < 2; round++)
      expect((await verifyBundle(bundle, policy, { attestations })).verdict).toBe('verified')
  })
})

describe('verifyBundle without what it needs', () => {
  it.each<[string, Partial<BundlePolicy>, readonly BundleCheckName[]]>([
    ['no measurements', { measurements: [] }, ['measurements']],
    ['no configurations', { configurations: [] }, ['expected configuration']],
    [
      'neither',
      { measurements: [], configurations: [] },
      ['measurements', 'expected configuration'],
    ],
  ])('a bundle is not called verified when expectations are missing: %s', async (_, less, open) => {
    expect(await verifyBundle(bundle, { ...policy, ...less })).toMatchObject({
      verdict: 'consistent',
      open,
    })
    const { measurements = [], configurations = [] } = { ...policy, ...less }
    const { roots = [] } = policy
    const leftOut = {
      roots,
      ...(measurements.length > 0 ? { measurements } : {}),
      ...(configurations.length > 0 ? { configurations } : {}),
    }
    expect(await verifyBundle(bundle, leftOut)).toMatchObject({ verdict: 'consistent', open })
  })

  it.each(['client_disconnected', 'upstream_error'] as const)(
    'a cut answer (%s) is not called verified unless the policy takes that outcome',
    async (outcome) => {
      const cut = buildEvidence({ record: { receipt: { outcome } } })
      const report = await verifyBundle(cut.bundle, policy, { chain: cut.chain })
      expect(report).toMatchObject({ verdict: 'consistent', open: ['outcome'], facts: { outcome } })
      expect(detailOf(report, 'outcome')).toContain(`${outcome}: the answer was cut`)
      const other = outcome === 'upstream_error' ? 'client_disconnected' : 'upstream_error'
      for (const outcomes of [[], ['complete'], [other]] as const)
        expect((await verifyBundle(cut.bundle, { ...policy, outcomes })).verdict).toBe('consistent')
      const taken = await verifyBundle(cut.bundle, { ...policy, outcomes: [other, outcome] })
      expect(taken).toMatchObject({ verdict: 'verified', facts: { outcome } })
    },
  )

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

  it('a bundle without a block, not mined yet or taken away, is never called verified', async () => {
    const open = ['block header', 'anchor time', 'transaction in block', 'anchor outcome']
    const pending = buildEvidence({ isMined: false })
    for (const unmined of [pending.bundle, { ...bundle, block: null }]) {
      expect(await verifyBundle(unmined, policy)).toMatchObject({ verdict: 'consistent', open })
      const asked = await verifyBundle(unmined, policy, { chain })
      expect(asked).toMatchObject({ verdict: 'consistent', open: [...open, 'block on chain'] })
    }
  })
})

describe('verifyBundle on anything', () => {
  it('verifyBundle never verifies a bundle in which anything was changed', async () => {
    await fc.assert(
      fc.asyncProperty(mutatedAt(bundle, []), async (changed) => {
        fc.pre(canonicalize(changed) !== canonicalize(bundle) && !isBlockGone(changed))
        expect((await verifyBundle(changed, policy, { chain })).verdict).toBe('invalid')
      }),
      { numRuns: 250 },
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
      { numRuns: 50 },
    )
  })

  it('the report names the member that is not in its form', async () => {
    const report = await verifyBundle(replaceAt(bundle, ['block', 'number'], '7'), policy)
    expect(detailOf(report, 'format')).toMatch(/block.number/)
  })
})

describe('what verifyBundle does not detect', () => {
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

  it('verifyBundle does not detect members in another order or -0 for 0, which change no meaning', async () => {
    const reversed = Object.fromEntries(Object.entries(bundle).reverse())
    expect(await failedOf(reversed)).toEqual([])
    const path = ['record', 'response', 'choices', 0, 'index']
    expect(await failedOf(replaceAt(bundle, path, -0))).toEqual([])
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
})

const P384_ORDER =
  0xffffffffffffffffffffffffffffffffffffffffffffffffc7634d81f4372ddf581a0db248b0a77aecec196accc52973n

/** Without its block a bundle is one that was made before it was mined: open, not wrong. */
function isBlockGone(changed: Json): boolean {
  return (changed as Partial<EvidenceBundle> | null)?.block === null
}
