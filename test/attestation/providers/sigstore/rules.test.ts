import { describe, expect, it } from 'vitest'
import type { Json } from '#attestation/json/value.ts'
import { requireChecks } from '#attestation/providers/provider-checks.ts'
import { ProviderEvidenceError } from '#attestation/providers/provider-error.ts'
import { SIGSTORE_CHECKS, SIGSTORE_CODES } from '#attestation/providers/sigstore/sigstore-codes.ts'
import { SIGSTORE_TRUST } from '#attestation/providers/sigstore/sigstore-trust.ts'
import { verifySigstoreBundle } from '#attestation/providers/sigstore/verify-sigstore-bundle.ts'
import {
  buildSigstoreBundle,
  DEVELOPMENT_SIGSTORE,
  DIGEST,
  IDENTITY,
} from '../../../support/provider-builder/sigstore-builder.ts'
import {
  sigstoreAcceptances,
  sigstoreRefusals,
} from '../../../support/provider-cases/sigstore-cases.ts'
import { PROVIDER_FIXTURES, readProviderFixture } from '../../../support/provider-fixtures.ts'

const trust = DEVELOPMENT_SIGSTORE

it.each(sigstoreAcceptances)('verifySigstoreBundle accepts a bundle: $name', async (acceptance) => {
  const { identity } = acceptance
  const { facts, checks } = await verifySigstoreBundle(buildSigstoreBundle(acceptance), {
    identity: { ...IDENTITY, ...identity },
    trust,
  })
  requireChecks(checks)
  expect(checks.map(({ name }) => name)).toEqual(Object.keys(SIGSTORE_CHECKS))
  expect(facts).toMatchObject({
    repository: 'example/model',
    ref: 'refs/tags/v1.0.0',
    digest: DIGEST,
  })
})

it.each(sigstoreRefusals)('verifySigstoreBundle refuses with $code: $name', async (refusal) => {
  const { code, identity } = refusal
  const { facts, checks } = await verifySigstoreBundle(buildSigstoreBundle(refusal), {
    identity: { ...IDENTITY, ...identity },
    trust,
  })
  const failed = checks.filter(({ outcome }) => outcome === 'failed')
  expect(failed.map(({ name, code: found }) => [name, found])).toEqual([
    [SIGSTORE_CODES[code], code],
  ])
  expect(facts).toBeNull()
  expect(() => requireChecks(checks)).toThrow(ProviderEvidenceError)
})

it('a bundle without an accepted repository shows who built, and is not accepted', async () => {
  const { facts, checks } = await verifySigstoreBundle(buildSigstoreBundle(), {
    identity: null,
    trust,
  })
  expect(facts?.repository).toBe('example/model')
  expect(() => requireChecks(checks)).toThrow(expect.objectContaining({ code: 'not_checked' }))
})

describe.skipIf(!PROVIDER_FIXTURES.isMet)(PROVIDER_FIXTURES.title('a real bundle'), () => {
  it('a real bundle of the public Sigstore gives its repository, tag and artifact', async () => {
    const file = readProviderFixture('snp/tinfoil-attestation-bundle.json')
    const { sigstoreBundle, digest } = JSON.parse(Buffer.from(file).toString())
    const repository = 'tinfoilsh/confidential-model-router'
    const identity = { repository, refs: ['refs/tags/v0.0.38'], digests: [digest] }
    const judged = await verifySigstoreBundle(sigstoreBundle as Json, {
      identity,
      trust: SIGSTORE_TRUST,
    })
    requireChecks(judged.checks)
    expect(judged.facts).toMatchObject({ repository, ref: 'refs/tags/v0.0.38', digest })
  })
})
