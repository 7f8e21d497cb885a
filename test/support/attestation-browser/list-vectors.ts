import { encodeHex } from '#attestation/bytes.ts'
import type { AttestationPolicy } from '#attestation/nitro/policy.ts'
import { acceptances, refusals } from '../nitro-cases/all-cases.ts'
import { policyOf, timeOf } from '../nitro-cases/case.ts'
import { type NitroFixture, nitroFixtures, readFixture } from '../nitro-fixtures.ts'
import { encodePolicy, type Vector } from './vector.ts'

const HOUR_MS = 3_600_000

/**
 * A case for each code and for each rule. Also the documents that AWS signed (if the shared fixtures
 * are there), at times inside and outside their validity.
 */
export function listVectors(): readonly Vector[] {
  const accepted = acceptances.map((one) => ({ ...one, code: 'accepted', about: `${one.rule}` }))
  const refused = refusals.map((one) => ({ ...one, about: one.code }))
  const firsts = new Map([...accepted, ...refused].toReversed().map((one) => [one.about, one]))
  return [
    ...[...firsts.values()].map((one) => ({
      name: `${one.code}: ${one.name}`,
      document: encodeHex(one.document),
      atMs: timeOf(one).getTime(),
      expected: one.code,
      policy: encodePolicy(policyOf(one), { encode: encodeHex }),
    })),
    ...nitroFixtures.filter(({ kind }) => kind === 'aws').flatMap(fixtureVectors),
  ]
}

function fixtureVectors(fixture: NitroFixture): readonly Vector[] {
  const policy: AttestationPolicy = {
    measurements: 'any',
    allowDebug: fixture.debug_mode_zero_pcrs,
  }
  const vector = (expected: string, atMs: number): Vector => ({
    name: `${expected}: ${fixture.file}`,
    document: encodeHex(readFixture(fixture)),
    atMs,
    expected,
    policy: encodePolicy(policy, { encode: encodeHex }),
  })
  return [
    vector('accepted', fixture.valid_at * 1000),
    vector('certificate_not_yet_valid', Date.parse(fixture.leaf_not_before) - HOUR_MS),
    vector('certificate_expired', Date.parse(fixture.leaf_not_after) + HOUR_MS),
  ]
}
