import { expect, it } from 'vitest'
import { decodeBase64, encodeBase64 } from '#attestation/bytes.ts'
import { verifyBundle } from '#attestation/evidence/verify-bundle.ts'
import { createAttestationVerifier } from '#attestation/nitro/verify-attestation.ts'
import { buildChain } from '../../support/nitro-builder/development-pki.ts'
import { buildDocument, PCR_VALUES } from '../../support/nitro-builder/document-builder.ts'
import { NOTARY } from '../build-record.ts'
import { BOOT_CONFIGURATION, buildEvidence, digestOf, documentFor } from './build-evidence.ts'
import { detailOf, failedOf } from './read-report.ts'

const { bundle, policy } = buildEvidence()

const forgedChain = buildChain({ level: 0, parts: { sign: () => new Uint8Array(8) } })

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
    const isOfPolicy = /^(root_untrusted|debug_mode): /.test(reason)
    const verdict = isOfPolicy ? 'not_accepted' : 'invalid'
    expect(report).toMatchObject({ verdict, open: names, facts: null })
  },
)

it('a report without expected measurements says that none were given, even for an invalid document', async () => {
  const { measurements: _, ...rest } = policy
  const { bundle: forged } = buildEvidence({ stored: { attestation: 'AAAA' } })
  expect(detailOf(await verifyBundle(forged, rest), 'measurements')).toBe(
    'no expected measurements were given',
  )
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

function zeroPcrs(): ReadonlyMap<number, Uint8Array> {
  return new Map(
    [...PCR_VALUES].map(([index, pcr]) => [index, index < 3 ? new Uint8Array(48) : pcr]),
  )
}
