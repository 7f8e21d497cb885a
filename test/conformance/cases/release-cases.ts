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
  consistent,
  type Draft,
  invalid,
  OFFLINE,
  ROOT,
  verified,
} from './draft.ts'

const { bundle } = buildEvidence()
const configured = buildRelease({ configuration: CONFIGURATION })
const fromMadeAt = (seconds: number) => formatTime(MADE_AT.getTime() + seconds * 1000)

function draft(
  name: string,
  release: Content,
  { about, expect }: Pick<Draft, 'about' | 'expect'>,
  configurations?: readonly string[],
): Draft {
  return {
    name: `bundle/release/${name}`,
    about,
    kind: 'bundle',
    source: { json: bundle as unknown as Json },
    demands: {
      roots: [ROOT],
      releases: [release],
      release_keys: [OPERATOR_KEY],
      ...(configurations === undefined ? {} : { configurations }),
    },
    expect,
  }
}

const signed = (release: ReturnType<typeof buildRelease>): Content => ({
  json: signRelease(release, OPERATOR_SECRET) as unknown as Json,
})

/** A list of these releases, signed by the operator of the cases. */
export function listOf(...releases: readonly ReleaseEntry[]): Content {
  const list = { issued_at: '2026-03-03T00:00:00Z', releases }
  return { json: signReleaseList(list, OPERATOR_SECRET) as unknown as Json }
}

const wrong = invalid(['measurements'], 'expected configuration', OFFLINE)

/** Bundles of expected releases, and of unexpected ones. */
export const releaseCases: readonly Draft[] = [
  draft('with-its-configuration', signed(configured), {
    about: 'A signed release that names its configuration: no other expectation is needed.',
    expect: verified(OFFLINE),
  }),
  draft('without-a-configuration', signed(buildRelease()), {
    about: 'A signed release that names no configuration.',
    expect: consistent('expected configuration', OFFLINE),
  }),
  draft(
    'and-a-configuration',
    signed(buildRelease()),
    {
      about: 'A signed release that names no configuration, and one that is expected beside it.',
      expect: verified(OFFLINE),
    },
    [CONFIGURATION],
  ),
  draft(
    'of-a-list',
    listOf(buildEntry({ release: configured }), buildEntry({ release: buildOtherRelease() })),
    { about: 'One of two releases of a signed list.', expect: verified(OFFLINE) },
  ),
  draft('of-another-configuration', signed(buildRelease({ configuration: 'ab'.repeat(32) })), {
    about: 'The release was signed with another configuration.',
    expect: invalid(['expected configuration'], OFFLINE),
  }),
  draft(
    'of-another-configuration-than-is-given',
    signed(configured),
    {
      about:
        'The configuration is that of the release, not the configuration that is expected beside it.',
      expect: invalid(['expected configuration'], OFFLINE),
    },
    ['ab'.repeat(32)],
  ),
  draft('of-other-code', signed(buildOtherRelease()), {
    about: 'A release of other code.',
    expect: wrong,
  }),
  draft(
    'not-accepted-yet',
    listOf(buildEntry({ release: configured, accepted_from: fromMadeAt(1) })),
    { about: 'Accepted from a second after the document was made.', expect: wrong },
  ),
  draft(
    'accepted-no-more',
    listOf(buildEntry({ release: configured, accepted_until: fromMadeAt(0) })),
    { about: 'Accepted until the second in which the document was made.', expect: wrong },
  ),
  draft(
    'revoked',
    listOf(
      buildEntry({
        release: configured,
        revoked: { at: fromMadeAt(1), reason: 'it signs anything' },
      }),
    ),
    { about: 'Revoked, be it after the document was made.', expect: wrong },
  ),
]
