import type { Json } from '#attestation/json/value.ts'
import type { ReleaseEntry } from '#attestation/release/release-list.ts'
import { formatTime } from '#attestation/release/release-signatures.ts'
import { signRelease, signReleaseList } from '#attestation/release/verify-release.ts'
import { buildEvidence } from '../../attestation/evidence/build-evidence.ts'
import { buildEntry, buildOtherRelease, buildRelease } from '../../support/build-release.ts'
import { MADE_AT } from '../../support/nitro-builder/development-pki.ts'
import { OPERATOR_KEY, OPERATOR_SECRET } from '../../support/release-stage.ts'
import {
  CONFIGURATION,
  type Content,
  type Draft,
  type DraftDemands,
  incomplete,
  notAccepted,
  OFFLINE,
  ROOT,
  tableOf,
  verified,
} from './draft.ts'

const { bundle } = buildEvidence()
const configured = buildRelease({ configuration: CONFIGURATION })
const fromMadeAt = (seconds: number) => formatTime(MADE_AT.getTime() + seconds * 1000)

const demanding = (release: Content, ...configurations: readonly string[]): DraftDemands => ({
  roots: [ROOT],
  releases: [release],
  release_keys: [OPERATOR_KEY],
  ...(configurations.length === 0 ? {} : { configurations }),
})
const cases = tableOf('bundle', {})

const signed = (release: ReturnType<typeof buildRelease>): Content => ({
  json: signRelease(release, OPERATOR_SECRET) as unknown as Json,
})

/** A list of these releases, signed by the operator of the cases. */
export function listOf(...releases: readonly ReleaseEntry[]): Content {
  const list = { issued_at: '2026-03-03T00:00:00Z', releases }
  return { json: signReleaseList(list, OPERATOR_SECRET) as unknown as Json }
}

/** Bundles of expected releases, and of unexpected ones. */
export const releaseCases: readonly Draft[] = [
  ...cases(verified(OFFLINE), {
    'release/with-its-configuration': [
      'A signed release that names its configuration: no other expectation is needed.',
      bundle,
      demanding(signed(configured)),
    ],
    'release/and-a-configuration': [
      'A signed release that names no configuration, and one that is expected beside it.',
      bundle,
      demanding(signed(buildRelease()), CONFIGURATION),
    ],
    'release/of-a-list': [
      'One of two releases of a signed list.',
      bundle,
      demanding(
        listOf(buildEntry({ release: configured }), buildEntry({ release: buildOtherRelease() })),
      ),
    ],
  }),
  ...cases(incomplete('expected configuration', OFFLINE), {
    'release/without-a-configuration': [
      'A signed release that names no configuration.',
      bundle,
      demanding(signed(buildRelease())),
    ],
  }),
  ...cases(notAccepted(['expected configuration'], OFFLINE), {
    'release/of-another-configuration': [
      'The release was signed with another configuration.',
      bundle,
      demanding(signed(buildRelease({ configuration: 'ab'.repeat(32) }))),
    ],
    'release/of-another-configuration-than-is-given': [
      'The configuration is that of the release, not the configuration that is expected beside it.',
      bundle,
      demanding(signed(configured), 'ab'.repeat(32)),
    ],
  }),
  ...cases(notAccepted(['measurements'], 'expected configuration', OFFLINE), {
    'release/of-other-code': [
      'A release of other code.',
      bundle,
      demanding(signed(buildOtherRelease())),
    ],
    'release/not-accepted-yet': [
      'Accepted from a second after the document was made.',
      bundle,
      demanding(listWith({ accepted_from: fromMadeAt(1) })),
    ],
    'release/accepted-no-more': [
      'Accepted until the second in which the document was made.',
      bundle,
      demanding(listWith({ accepted_until: fromMadeAt(0) })),
    ],
    'release/revoked': [
      'Revoked, be it after the document was made.',
      bundle,
      demanding(listWith({ revoked: { at: fromMadeAt(1), reason: 'it signs anything' } })),
    ],
  }),
]

function listWith(changed: Partial<ReleaseEntry>): Content {
  return listOf(buildEntry({ release: configured, ...changed }))
}
