import { expect, it } from 'vitest'
import { encodeUtf8 } from '#attestation/bytes.ts'
import { FormatError } from '#attestation/errors.ts'
import { createBundle, parseEvidenceBundle } from '#attestation/evidence/bundle.ts'
import { readEvidenceLines, writeEvidenceLines } from '#attestation/evidence/evidence-lines.ts'
import type { BundlePolicy } from '#attestation/evidence/policy.ts'
import { verifyBundle } from '#attestation/evidence/verify-bundle.ts'
import { parseExactJson } from '#attestation/json/parse-strict.ts'
import type { Json, JsonObject } from '#attestation/json/value.ts'
import { verifySession } from '#attestation/session/verify-session.ts'
import { MADE_AT } from '../../support/nitro-builder/development-pki.ts'
import { ROOT_HASH, TLS_KEY } from '../../support/provider-builder/evidence-builder.ts'
import { otherLastDigit } from '../mutate-json.ts'
import {
  buildAttested,
  buildProvider,
  PROVEN_MODEL,
  providerPart,
  providerWith,
  withProvider,
} from './build-attested.ts'
import { buildEvidence } from './build-evidence.ts'
import { isValid } from './check-schema.ts'
import { detailOf, namesOf } from './read-report.ts'

const HOUR_MS = 3_600_000
const whole = buildAttested()
const jsonOf = (value: object): JsonObject => JSON.parse(JSON.stringify(value))

const judge = (bundle: object, policy: BundlePolicy = whole.policy) =>
  verifyBundle(jsonOf(bundle), policy, { chain: whole.chain })

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

it('a session passes the policy on to its calls', async () => {
  const text = writeEvidenceLines([jsonOf(whole.bundle), jsonOf(whole.bundle)])
  const read = readEvidenceLines(encodeUtf8(text)) ?? []
  const { calls } = await verifySession(read, whole.policy)
  expect(calls).toHaveLength(2)
  for (const { report } of calls) {
    expect(namesOf(report, 'passed')).toContain('provider attested')
    expect(report.facts?.providerEvidence?.isAccepted).toBe(true)
  }
  // The file has the document once. A line alone says which document it needs.
  const [first = '', second = ''] = text.split('\n')
  expect(first.length - second.length).toBeGreaterThan(
    whole.bundle.provider_evidence?.document?.length ?? 0,
  )
  const alone = await verifyBundle(parseExactJson(encodeUtf8(second)), whole.policy)
  expect(alone).toMatchObject({
    verdict: 'incomplete',
    open: ["provider's key", 'provider attested'],
  })
  expect(detailOf(alone, "provider's key")).toContain(whole.bundle.provider_evidence?.sha256)
})

it('lines keep a document that only a later call has, and the first call has it', () => {
  const call = jsonOf(whole.bundle)
  const { document: _, ...digest } = call.provider_evidence as JsonObject
  const lines = writeEvidenceLines([{ ...call, provider_evidence: digest }, call])
  const both = [whole.bundle, whole.bundle].map(jsonOf)
  expect(readEvidenceLines(encodeUtf8(lines))).toEqual(both)
  expect(lines).toBe(writeEvidenceLines(both))
})

const OTHER = otherLastDigit('https://provider.example')
const otherKey = otherLastDigit(TLS_KEY)
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
    'provider_origin: expected evidence of https://provider.example, got https://provider.exampl1',
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
    'evidence_from_future: age, failed: expected evidence from before the time of the check',
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
  const isOfPolicy = name === 'provider attested' && !detail.startsWith('evidence_from_future')
  const verdict = isOfPolicy ? 'not_accepted' : 'invalid'
  expect(report).toMatchObject({ verdict, facts: null })
  expect(namesOf(report, 'failed')).toContain(name)
  expect(detailOf(report, name)).toContain(detail)
  const others = namesOf(report, 'failed').filter(
    (failed) => failed !== "provider's key" && failed !== 'provider attested',
  )
  expect(others).toEqual([])
  expect(report.providerChecks.length).toBeGreaterThan(0)
})

it('a receipt that names a time beyond all dates fails, and throws nothing', async () => {
  const { bundle, policy } = buildAttested(undefined, undefined, {
    record: {
      receipt: { provider: providerWith(TLS_KEY), finished_at: Number.MAX_SAFE_INTEGER },
    },
    isMined: false,
  })
  const report = await verifyBundle(jsonOf(bundle), policy)
  expect(detailOf(report, 'provider attested')).toContain('certificate_expired')
})

const withMember = (provider_evidence: Json): JsonObject => ({
  ...jsonOf(whole.bundle),
  provider_evidence,
})
const withDocument = (text: string) =>
  withMember({ sha256: providerPart(Buffer.from(text, 'base64')).sha256, document: text })
const LIMIT = 4 * 1024 * 1024
const large = (bytes: number) => Buffer.alloc(bytes).toString('base64')

it.each([
  ['one byte', 'AA=='],
  ['4 MiB', large(LIMIT)],
])('the parser and the schema take evidence of a provider of %s', (_, text) => {
  expect(parseEvidenceBundle(withDocument(text)).provider_evidence?.document).toBe(text)
  expect(isValid(withDocument(text))).toBe(true)
})

it.each<[string, Json]>([
  ['null', null],
  ['an object', {}],
  ['a text', 'AA=='],
  ['a digest in upper case', { sha256: 'AB'.repeat(32) }],
  ['a member more', { sha256: 'ab'.repeat(32), note: '' }],
  ...['', 'AA==\n', '__8=', large(LIMIT + 1)].map((document): [string, Json] => [
    `a document of ${document.length} characters in another form`,
    { sha256: providerPart(Buffer.from(document, 'base64')).sha256, document },
  ]),
])('the parser and the schema refuse %s as evidence of a provider', (_, value) => {
  expect(() => parseEvidenceBundle(withMember(value))).toThrow(FormatError)
  expect(() => parseEvidenceBundle(withMember(value))).toThrow(/provider_evidence/)
  expect(isValid(withMember(value))).toBe(false)
})

it.each([
  ['base64 without its padding', 'AA'],
  ['unused bits', 'AB=='],
])('the parser refuses evidence of a provider in %s, which the schema does not see', (_, text) => {
  expect(() => parseEvidenceBundle(withDocument(text))).toThrow(/provider_evidence/)
})

it('a document beside the digest of another is refused', () => {
  const { sha256 } = providerPart(encodeUtf8('one'))
  const { document } = providerPart(encodeUtf8('other'))
  expect(() => parseEvidenceBundle(withMember({ sha256, document }))).toThrow(
    /provider_evidence.document/,
  )
})

it('createBundle adds the bytes', () => {
  const { bundle } = buildEvidence()
  const { record, boot_configuration: bootConfiguration, transaction, block } = bundle
  const parts = { record: jsonOf(record), bootConfiguration, transaction, block }
  const providerEvidence = encodeUtf8('evidence')
  const made = createBundle({ ...parts, providerEvidence })
  expect(made.provider_evidence).toEqual(providerPart(providerEvidence))
  expect(createBundle({ ...parts, providerEvidence: null })).toEqual(bundle)
  expect(createBundle(parts)).toEqual(bundle)
})
