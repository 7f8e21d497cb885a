import { createHash } from 'node:crypto'
import { Wallet } from 'ethers'
import { describe, expect, it } from 'vitest'
import { decodeBase64, encodeBase64 } from '#attestation/bytes.ts'
import type { BundleCheckName } from '#attestation/evidence/bundle-checks.ts'
import { verifyBundle } from '#attestation/evidence/verify-bundle.ts'
import type { JsonObject } from '#attestation/json/value.ts'
import { createAttestationVerifier } from '#attestation/nitro/verify-attestation.ts'
import { buildChain, MADE_AT } from '../../support/nitro-builder/development-pki.ts'
import { buildDocument, PCR_VALUES } from '../../support/nitro-builder/document-builder.ts'
import { NOTARY } from '../build-record.ts'
import {
  BOOT_CONFIGURATION,
  buildEvidence,
  digestOf,
  documentFor,
  FINISHED_AT,
} from './build-evidence.ts'
import { detailOf, failedOf } from './read-report.ts'

const { bundle, policy } = buildEvidence()
const STRANGER = new Wallet(`0x${'17'.repeat(32)}`)
const OTHER_CONTRACT = `0x${'c1'.repeat(20)}`

describe('verifyBundle on evidence of other enclaves', () => {
  const forgedChain = buildChain({ level: 0, parts: { sign: () => new Uint8Array(8) } })

  it.each<[string, string, readonly BundleCheckName[]]>([
    [
      'of another key',
      documentFor(BOOT_CONFIGURATION, { public_key: keyOf(STRANGER) }),
      ['attestation key'],
    ],
    ['of no key', documentFor(BOOT_CONFIGURATION, { public_key: null }), ['attestation key']],
    [
      'of another configuration',
      documentFor({ ...BOOT_CONFIGURATION, ca_sha256: '' }),
      ['boot configuration'],
    ],
    [
      'of no configuration',
      documentFor(BOOT_CONFIGURATION, { user_data: null }),
      ['boot configuration'],
    ],
    [
      'that has no signature',
      forgedDocument({ signature: new Uint8Array(96) }),
      ['attestation document'],
    ],
    ['of another root', forgedDocument({ chain: forgedChain }), ['attestation document']],
    [
      'of other code',
      documentFor(BOOT_CONFIGURATION, {
        pcrs: pcrsWith(0, createHash('sha384').update('other').digest()),
      }),
      ['measurements'],
    ],
    [
      'of an enclave in debug mode',
      documentFor(BOOT_CONFIGURATION, { pcrs: zeroPcrs() }),
      ['attestation document'],
    ],
    [
      'made after the completion',
      documentFor(BOOT_CONFIGURATION, { timestamp: FINISHED_AT + 61_000 }),
      ['attestation time'],
    ],
    [
      'that is malformed',
      'AAAA',
      ['attestation key', 'attestation document', 'boot configuration', 'anchor time'],
    ],
  ])('verifyBundle fails an attestation document %s', async (_, attestation, failed) => {
    expect(await failedOf(buildEvidence({ stored: { attestation } }).bundle)).toEqual(failed)
  })

  it.each<[string, string, string]>([
    [
      'without a signature',
      forgedDocument({ signature: new Uint8Array(96) }),
      'signature_out_of_range: ',
    ],
    ['of another root', forgedDocument({ chain: forgedChain }), 'root_untrusted: '],
    ['in debug mode', documentFor(BOOT_CONFIGURATION, { pcrs: zeroPcrs() }), 'debug_mode: '],
    ['that is malformed', 'AAAA', ''],
  ])(
    'verifyBundle compares no measurements and no times of a document %s and says why',
    async (_, attestation, reason) => {
      const report = await verifyBundle(buildEvidence({ stored: { attestation } }).bundle, policy)
      const names = ['attestation time', 'measurements'] as const
      for (const name of names)
        expect(report.checks).toContainEqual({
          name,
          outcome: 'not checked',
          detail: expect.stringContaining(`the document is not valid: ${reason}`),
        })
      expect(report).toMatchObject({ verdict: 'invalid', open: names, facts: null })
    },
  )

  it('a report without expected measurements says that none were given, even for an invalid document', async () => {
    const { measurements: _, ...rest } = policy
    const { bundle: forged } = buildEvidence({ stored: { attestation: 'AAAA' } })
    expect(detailOf(await verifyBundle(forged, rest), 'measurements')).toBe(
      'no expected measurements were given',
    )
  })

  it('a completion that finished after the document’s certificates had ended fails', async () => {
    const finishedAt = MADE_AT.getTime() + 3 * 3600 * 1000
    const late = buildEvidence({ record: { receipt: { finished_at: finishedAt } } })
    expect(await failedOf(late.bundle)).toEqual(['attestation time'])
  })

  it('a genuine document of a development root fails under AWS’s root', async () => {
    const { measurements = [], configurations = [] } = policy
    expect(await failedOf(bundle, { measurements, configurations })).toEqual([
      'attestation document',
    ])
  })

  it('a document with a revoked certificate fails', async () => {
    const { facts: none } = await verifyBundle(bundle, policy)
    expect(none).not.toBeNull()
    const verifier = createAttestationVerifier()
    const { certificates } = await verifier.verify(
      decodeBase64(bundle.record.attestation),
      { measurements: 'any', mode: 'historical', roots: policy.roots ?? [] },
      new Date(0),
    )
    const revoked = certificates
      .slice(-1)
      .map(({ issuerEncoding, serial }) => ({ issuer: issuerEncoding, serial }))
    expect(await failedOf(bundle, { ...policy, revoked })).toEqual(['attestation document'])
  })

  it.each<[string, JsonObject, readonly BundleCheckName[]]>([
    [
      'a configuration that is not expected',
      { ...BOOT_CONFIGURATION, ca_sha256: 'cb'.repeat(32) },
      ['expected configuration'],
    ],
    [
      'a configuration for another chain than the log’s',
      { ...BOOT_CONFIGURATION, chain_id: 1 },
      ['boot configuration', 'expected configuration'],
    ],
    [
      'a configuration for another contract than the log’s',
      { ...BOOT_CONFIGURATION, contract: OTHER_CONTRACT },
      ['boot configuration', 'expected configuration'],
    ],
    [
      'a receipt of a provider that the configuration does not have',
      { ...BOOT_CONFIGURATION, providers: [{ name: 'demo', origin: 'https://evil.example' }] },
      ['expected configuration', 'provider'],
    ],
    [
      'a receipt of a provider under the origin of another',
      {
        ...BOOT_CONFIGURATION,
        providers: [
          { name: 'demo', origin: 'https://other.example' },
          { name: 'other', origin: 'https://provider.example' },
        ],
      },
      ['expected configuration', 'provider'],
    ],
  ])('verifyBundle fails %s, though the document names it', async (_, boot, failed) => {
    expect(await failedOf(buildEvidence({ boot }).bundle)).toEqual(failed)
  })
})

/** Right in all else than `forged`. */
function forgedDocument(
  forged: Pick<NonNullable<Parameters<typeof buildDocument>[0]>, 'chain' | 'signature'>,
): string {
  const fields = { public_key: keyOf(NOTARY), user_data: Buffer.from(digestOf(BOOT_CONFIGURATION)) }
  return encodeBase64(buildDocument({ ...forged, fields }))
}

function keyOf(wallet: Pick<typeof NOTARY, 'signingKey'>): Buffer {
  return Buffer.from(wallet.signingKey.publicKey.slice(2), 'hex')
}

function pcrsWith(index: number, value: Uint8Array): ReadonlyMap<number, Uint8Array> {
  return new Map([...PCR_VALUES, [index, value]])
}

function zeroPcrs(): ReadonlyMap<number, Uint8Array> {
  return new Map(
    [...PCR_VALUES].map(([index, pcr]) => [index, index < 3 ? new Uint8Array(48) : pcr]),
  )
}
