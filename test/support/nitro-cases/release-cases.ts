import { entryOf, type ReleaseEntry } from '#attestation/release/release-list.ts'
import { formatTime } from '#attestation/release/release-signatures.ts'
import { buildEntry, buildOtherRelease, buildRelease } from '../build-release.ts'
import { nearly } from '../case-table.ts'
import { MADE_AT } from '../nitro-builder/development-pki.ts'
import { PCR_VALUES } from '../nitro-builder/document-builder.ts'
import { acceptancesOf, refusalsOf, under } from './case.ts'

const fromMadeAt = (seconds: number) => formatTime(MADE_AT.getTime() + seconds * 1000)
const expecting = (...releases: readonly ReleaseEntry[]) => ({ measurements: [], releases })
const revoked = { at: fromMadeAt(1), reason: 'it signs anything' }
const pcr8 = Buffer.from(PCR_VALUES.get(8) ?? []).toString('hex')
const { measurements } = buildRelease()
const nearPcr2 = Buffer.from(nearly(PCR_VALUES.get(2) ?? new Uint8Array())).toString('hex')

/** Documents of releases that were accepted when the documents were made. */
export const releaseAcceptances = acceptancesOf({
  24: {
    'a release by itself': under(expecting(entryOf(buildRelease()))),
    'a release of a signed image': under(
      expecting(entryOf(buildRelease({ measurements: { ...measurements, PCR8: pcr8 } }))),
    ),
    'the second of two releases': under(expecting(entryOf(buildOtherRelease()), buildEntry())),
    'a release beside another set': under({
      ...expecting(buildEntry()),
      measurements: [new Map([[0, new Uint8Array(48).fill(1)]])],
    }),
    'a release in its first second': under(expecting(buildEntry({ accepted_from: fromMadeAt(0) }))),
    'a release in its last second': under(expecting(buildEntry({ accepted_until: fromMadeAt(1) }))),
  },
})

/** Documents of releases that were not accepted. */
export const releaseRefusals = refusalsOf({
  release_not_yet: {
    'made a second before its release is accepted': under(
      expecting(buildEntry({ accepted_from: fromMadeAt(1) })),
    ),
  },
  release_expired: {
    'made when its release ended': under(expecting(buildEntry({ accepted_until: fromMadeAt(0) }))),
  },
  release_revoked: {
    'made before its release was revoked': under(expecting(buildEntry({ revoked }))),
    'of a release that is revoked in one list and accepted in another': under(
      expecting(buildEntry(), buildEntry({ revoked })),
    ),
  },
  measurement_mismatch: {
    'of none of the releases': under(expecting(entryOf(buildOtherRelease()))),
    'of a release in two of three measurements': under(
      expecting(entryOf(buildRelease({ measurements: { ...measurements, PCR2: nearPcr2 } }))),
    ),
    'of a release whose image was signed by another certificate': under(
      expecting(
        entryOf(buildRelease({ measurements: { ...measurements, PCR8: 'ab'.repeat(48) } })),
      ),
    ),
  },
  measurements_not_given: { 'no releases': under(expecting()) },
})
