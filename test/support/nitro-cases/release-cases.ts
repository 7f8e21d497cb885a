import { entryOf, type ReleaseEntry } from '#attestation/release/release-list.ts'
import { formatTime } from '#attestation/release/release-signatures.ts'
import { buildEntry, buildOtherRelease, buildRelease } from '../build-release.ts'
import { MADE_AT } from '../nitro-builder/development-pki.ts'
import { buildDocument, PCR_VALUES } from '../nitro-builder/document-builder.ts'
import type { Acceptance, Refusal } from './case.ts'

const document = buildDocument()
const fromMadeAt = (seconds: number) => formatTime(MADE_AT.getTime() + seconds * 1000)
const expecting = (...releases: readonly ReleaseEntry[]) => ({ measurements: [], releases })
const revoked = { at: fromMadeAt(1), reason: 'it signs anything' }
const pcr8 = Buffer.from(PCR_VALUES.get(8) ?? []).toString('hex')
const { measurements } = buildRelease()

/** Documents of releases that were accepted when the documents were made. */
export const releaseAcceptances: readonly Acceptance[] = [
  { rule: 24, name: 'a release by itself', document, policy: expecting(entryOf(buildRelease())) },
  {
    rule: 24,
    name: 'a release of a signed image',
    document,
    policy: expecting(entryOf(buildRelease({ measurements: { ...measurements, PCR8: pcr8 } }))),
  },
  {
    rule: 24,
    name: 'the second of two releases',
    document,
    policy: expecting(entryOf(buildOtherRelease()), buildEntry()),
  },
  {
    rule: 24,
    name: 'a release beside another set',
    document,
    policy: {
      ...expecting(buildEntry()),
      measurements: [new Map([[0, new Uint8Array(48).fill(1)]])],
    },
  },
  {
    rule: 24,
    name: 'a release in its first second',
    document,
    policy: expecting(buildEntry({ accepted_from: fromMadeAt(0) })),
  },
  {
    rule: 24,
    name: 'a release in its last second',
    document,
    policy: expecting(buildEntry({ accepted_until: fromMadeAt(1) })),
  },
]

/** Documents of releases that were not accepted. */
export const releaseRefusals: readonly Refusal[] = [
  {
    code: 'release_not_yet',
    name: 'made a second before its release is accepted',
    document,
    policy: expecting(buildEntry({ accepted_from: fromMadeAt(1) })),
  },
  {
    code: 'release_expired',
    name: 'made when its release ended',
    document,
    policy: expecting(buildEntry({ accepted_until: fromMadeAt(0) })),
  },
  {
    code: 'release_revoked',
    name: 'made before its release was revoked',
    document,
    policy: expecting(buildEntry({ revoked })),
  },
  {
    code: 'release_revoked',
    name: 'of a release that is revoked in one list and accepted in another',
    document,
    policy: expecting(buildEntry(), buildEntry({ revoked })),
  },
  {
    code: 'measurement_mismatch',
    name: 'of none of the releases',
    document,
    policy: expecting(entryOf(buildOtherRelease())),
  },
  {
    code: 'measurement_mismatch',
    name: 'of a release in two of three measurements',
    document,
    policy: expecting(
      entryOf(buildRelease({ measurements: { ...measurements, PCR2: 'ab'.repeat(48) } })),
    ),
  },
  {
    code: 'measurement_mismatch',
    name: 'of a release whose image was signed by another certificate',
    document,
    policy: expecting(
      entryOf(buildRelease({ measurements: { ...measurements, PCR8: 'ab'.repeat(48) } })),
    ),
  },
  { code: 'measurements_not_given', name: 'no releases', document, policy: expecting() },
]
