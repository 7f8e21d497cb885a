import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { encodeUtf8 } from '#attestation/bytes.ts'
import { FormatError } from '#attestation/errors.ts'
import { createBundle, parseEvidenceBundle, redactBundle } from '#attestation/evidence/bundle.ts'
import type { BundlePolicy } from '#attestation/evidence/policy.ts'
import { verifyBundle } from '#attestation/evidence/verify-bundle.ts'
import type { Json, JsonObject } from '#attestation/json/value.ts'
import { parseProviderPolicy } from '#attestation/providers/evidence/provider-policy.ts'
import { verifySession } from '#attestation/session/verify-session.ts'
import { MADE_AT } from '../../support/nitro-builder/development-pki.ts'
import { ROOT_HASH, TLS_KEY } from '../../support/provider-builder/evidence-builder.ts'
import {
  buildAttested,
  buildProvider,
  PROVEN_MODEL,
  providerWith,
  withProvider,
} from './build-attested.ts'
import { buildEvidence } from './build-evidence.ts'
import { isValid } from './check-schema.ts'
import { detailOf, namesOf } from './read-report.ts'

const schema: JsonObject = JSON.parse(
  readFileSync(
    join(import.meta.dirname, '../../../attestation/evidence/bundle.schema.json'),
    'utf8',
  ),
)
const HOUR_MS = 3_600_000
const whole = buildAttested()
const plain = buildEvidence()
const jsonOf = (value: object): JsonObject => JSON.parse(JSON.stringify(value))
const { providerPolicy: _, ...withoutPolicy } = whole.policy

const judge = (bundle: object, policy: BundlePolicy = whole.policy) =>
  verifyBundle(jsonOf(bundle), policy, { chain: whole.chain })

describe('a bundle with evidence of its provider', () => {
  it.each(['tinfoil v3 TDX', 'tinfoil v3 SNP', 'dstack', 'aci', 'nitro'] as const)(
    'evidence of %s is verified under its policy, and states the key of the receipt',
    async (kind) => {
      const { bundle, policy, chain } = buildAttested(kind)
      const report = await verifyBundle(jsonOf(bundle), policy, { chain })
      expect(report.verdict).toBe('verified')
      expect(namesOf(report, 'passed')).toEqual(
        expect.arrayContaining(["provider's key", 'provider attested']),
      )
      expect(detailOf(report, "provider's key")).toContain(TLS_KEY)
      expect(detailOf(report, 'provider attested')).toContain('for development')
      expect(report.facts?.providerEvidence).toMatchObject({
        isAccepted: true,
        origin: 'https://provider.example',
        hasReplacedRoots: true,
      })
      expect(report.providerChecks.length).toBeGreaterThanOrEqual(12)
    },
  )

  it('the weights of the model that answered are shown with their root hash', async () => {
    const { facts } = await judge(whole.bundle)
    expect(facts?.providerEvidence?.weights).toMatchObject({
      weights: 'hardware_proven',
      measured: { name: PROVEN_MODEL, source: 'example/model-31B@fb9ae262', rootHash: ROOT_HASH },
    })
  })

  it('the weights of a model that the measured list does not name are unknown', async () => {
    const { bundle, policy, chain } = buildAttested(undefined, undefined, {
      record: { response: { id: '1', model: 'another' } },
    })
    const report = await verifyBundle(jsonOf(bundle), policy, { chain })
    expect(report.verdict).toBe('verified')
    expect(report.facts?.providerEvidence?.weights).toEqual({
      weights: 'unknown',
      reason: 'the measured configuration does not name this model',
      measured: null,
    })
  })

  it('an answer that names no model has the weights of the model that was asked for', async () => {
    const { bundle, policy, chain } = buildAttested(undefined, undefined, {
      record: { request: { model: PROVEN_MODEL, messages: [] }, response: { id: '1' } },
    })
    const report = await verifyBundle(jsonOf(bundle), policy, { chain })
    expect(report.facts?.providerEvidence?.weights.weights).toBe('hardware_proven')
  })

  it('a bundle is verified without a policy, and the evidence was not judged', async () => {
    const report = await judge(whole.bundle, withoutPolicy)
    expect(report.verdict).toBe('verified')
    expect(namesOf(report, 'not checked')).toEqual(["provider's key", 'provider attested'])
    expect(detailOf(report, 'provider attested')).toBe('no policy for the provider was given')
    expect(report.facts?.providerEvidence).toMatchObject({ isAccepted: false, tlsKeys: [] })
    expect(report.facts?.providerEvidence?.weights.weights).toBe('unknown')
  })

  it('a bundle without evidence is consistent under a policy, and verified without one', async () => {
    const report = await verifyBundle(
      jsonOf(plain.bundle),
      { ...plain.policy, providerPolicy: parseProviderPolicy(whole.providerPolicy) },
      { chain: plain.chain },
    )
    expect(report).toMatchObject({
      verdict: 'consistent',
      open: ["provider's key", 'provider attested'],
      providerChecks: [],
      facts: { providerEvidence: null },
    })
    const without = await verifyBundle(jsonOf(plain.bundle), plain.policy, { chain: plain.chain })
    expect(without.verdict).toBe('verified')
    expect(without.checks.map(({ name }) => name)).not.toContain('provider attested')
  })

  it('a session passes the policy on to its calls', async () => {
    const session = {
      format: 'affidavit-session-bundle',
      version: 1,
      id: 'ab'.repeat(16),
      calls: [jsonOf(whole.bundle)],
    }
    const { calls } = await verifySession(session, whole.policy)
    const [call] = calls
    expect(call && namesOf(call.report, 'passed')).toContain('provider attested')
    expect(call?.report.facts?.providerEvidence?.isAccepted).toBe(true)
  })

  it('a redacted bundle keeps the evidence and its checks', async () => {
    const redacted = redactBundle(whole.bundle, { request: true, response: true })
    expect(redacted.provider_evidence).toBe(whole.bundle.provider_evidence)
    const report = await judge(redacted)
    expect(namesOf(report, 'passed')).toContain('provider attested')
  })
})

describe('evidence of a provider that is not evidence of the call', () => {
  const OTHER = 'https://other.example'
  const otherKey = 'ee'.repeat(32)
  const bound = (answer: { items: { data: string }[] }) => {
    const [tls] = answer.items
    if (tls) tls.data = otherKey
  }
  const refused = [
    [
      'evidence of another TLS key',
      withProvider(whole.bundle, buildProvider('tinfoil v3 TDX', { bound }).bytes),
      "provider's key",
      `provider_key: expected evidence of ${TLS_KEY}, got ${otherKey}`,
    ],
    [
      'evidence of another origin',
      withProvider(
        whole.bundle,
        buildProvider('tinfoil v3 TDX', { evidence: { origin: OTHER, responses: [] } }).bytes,
      ),
      "provider's key",
      'provider_origin: expected evidence of https://provider.example, got https://other.example',
    ],
    [
      'evidence of another kind of provider',
      withProvider(whole.bundle, buildProvider('dstack').bytes),
      'provider attested',
      'provider_kind: provider, failed: expected evidence of kind tinfoil, got dstack',
    ],
    [
      'evidence that is older than the policy accepts',
      withProvider(
        whole.bundle,
        buildProvider('tinfoil v3 TDX', {
          evidence: { fetchedAtMs: MADE_AT.getTime() - 25 * HOUR_MS },
        }).bytes,
      ),
      'provider attested',
      'evidence_too_old: age, failed: expected evidence of the last 24 hours',
    ],
    [
      'evidence from after the call',
      withProvider(
        whole.bundle,
        buildProvider('tinfoil v3 TDX', {
          evidence: { fetchedAtMs: MADE_AT.getTime() + HOUR_MS },
        }).bytes,
      ),
      'provider attested',
      'evidence_from_future: age, failed: expected evidence from before the judged time',
    ],
    [
      'bytes that are no evidence',
      withProvider(whole.bundle, encodeUtf8('{}')),
      "provider's key",
      'evidence_malformed: expected',
    ],
  ] as const

  it.each(refused)('a bundle with %s fails by name', async (_, bundle, name, detail) => {
    const report = await judge(bundle)
    expect(report).toMatchObject({ verdict: 'invalid', facts: null })
    expect(namesOf(report, 'failed')).toContain(name)
    expect(detailOf(report, name)).toContain(detail)
    const others = namesOf(report, 'failed').filter(
      (failed) => failed !== "provider's key" && failed !== 'provider attested',
    )
    expect(others).toEqual([])
    expect(report.providerChecks.length).toBeGreaterThan(0)
  })

  it('another origin fails without a policy too, since the receipt names its own', async () => {
    const [, [, swapped]] = refused
    const report = await judge(swapped, withoutPolicy)
    expect(namesOf(report, 'failed')).toEqual(["provider's key"])
  })

  it('a receipt that names a time beyond all dates fails, and throws nothing', async () => {
    const { bundle, policy } = buildAttested(undefined, undefined, {
      record: {
        receipt: { provider: providerWith(TLS_KEY), finished_at: Number.MAX_SAFE_INTEGER },
      },
      isMined: false,
    })
    const report = await verifyBundle(jsonOf(bundle), policy)
    expect(detailOf(report, 'provider attested')).toContain('evidence_too_old')
  })
})

describe('the member provider_evidence', () => {
  const withMember = (provider_evidence: Json): JsonObject => ({
    ...jsonOf(whole.bundle),
    provider_evidence,
  })
  const LIMIT = 4 * 1024 * 1024
  const large = (bytes: number) => Buffer.alloc(bytes).toString('base64')

  it.each([
    ['one byte', 'AA=='],
    ['4 MiB', large(LIMIT)],
  ])('the parser and the schema take %s', (_, text) => {
    expect(parseEvidenceBundle(withMember(text)).provider_evidence).toBe(text)
    expect(isValid(schema, withMember(text))).toBe(true)
  })

  it.each([
    ['null', null],
    ['an object', {}],
    ['an empty text', ''],
    ['a line break', 'AA==\n'],
    ['the URL alphabet', '__8='],
    ['more than 4 MiB', large(LIMIT + 1)],
  ])('the parser and the schema refuse %s', (_, value) => {
    expect(() => parseEvidenceBundle(withMember(value))).toThrow(FormatError)
    expect(() => parseEvidenceBundle(withMember(value))).toThrow(/provider_evidence/)
    expect(isValid(schema, withMember(value))).toBe(false)
  })

  it.each([
    ['base64 without its padding', 'AA'],
    ['unused bits', 'AB=='],
  ])('the parser refuses %s, which the schema does not see', (_, text) => {
    expect(() => parseEvidenceBundle(withMember(text))).toThrow(/provider_evidence/)
  })

  it.each([1, 2] as const)('a bundle of version %i has no such member', (version) => {
    const { bundle } = buildEvidence({ record: { version } })
    const json = { ...jsonOf(bundle), provider_evidence: 'AA==' }
    expect(() => parseEvidenceBundle(json)).toThrow(FormatError)
    expect(isValid(schema, json)).toBe(false)
  })

  it('createBundle adds the bytes in version 3, and leaves them out of older bundles', () => {
    for (const version of [2, 3] as const) {
      const { bundle } = buildEvidence({ record: { version } })
      const { record, boot_configuration: bootConfiguration, transaction, block } = bundle
      const parts = { record: jsonOf(record), bootConfiguration, transaction, block }
      const providerEvidence = encodeUtf8('evidence')
      const made = createBundle({ ...parts, providerEvidence })
      expect(made.provider_evidence).toBe(version === 3 ? 'ZXZpZGVuY2U=' : undefined)
      expect(createBundle({ ...parts, providerEvidence: null })).toEqual(bundle)
      expect(createBundle(parts)).toEqual(bundle)
    }
  })
})
