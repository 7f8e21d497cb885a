import { readFileSync } from 'node:fs'
import { expect, it } from 'vitest'
import { PolicyError } from '#attestation/nitro/policy.ts'
import { EVIDENCE_CHECKS, EVIDENCE_CODES } from '#attestation/providers/evidence/evidence-codes.ts'
import {
  type LookedUpBlock,
  type ProviderEvidence,
  parseProviderEvidence,
  providerNonce,
  writeProviderEvidence,
} from '#attestation/providers/evidence/evidence-document.ts'
import { readKeptCollateral } from '#attestation/providers/evidence/kept-collateral.ts'
import {
  type ProviderPolicy,
  parseProviderPolicy,
} from '#attestation/providers/evidence/provider-policy.ts'
import { verifyProviderEvidence } from '#attestation/providers/evidence/verify-provider-evidence.ts'
import { type ProviderCheck, requireChecks } from '#attestation/providers/provider-checks.ts'
import { ProviderEvidenceError } from '#attestation/providers/provider-error.ts'
import { entry } from '../../../support/nitro-builder/crl-builder.ts'
import { MADE_AT } from '../../../support/nitro-builder/development-pki.ts'
import {
  BLOCK_HASH,
  type BuiltKind,
  buildProviderEvidence,
  type EvidenceChanges,
  gpuItemUntil,
  HPKE_KEY,
  kept,
  MODEL_CONFIG,
  ORIGIN,
  predicateOf,
  ROOT_HASH,
  TLS_KEY,
} from '../../../support/provider-builder/evidence-builder.ts'
import { buildSnpList } from '../../../support/provider-builder/snp-pki.ts'
import {
  evidenceAcceptances,
  evidenceRefusals,
} from '../../../support/provider-cases/evidence-cases.ts'

const NONCE_HEX = Buffer.from(providerNonce(BLOCK_HASH, ORIGIN)).toString('hex')

function policyFrom(file: object): ProviderPolicy {
  return parseProviderPolicy(Buffer.from(JSON.stringify(file)))
}

async function judge(evidence: ProviderEvidence, file: object, lookedUp?: LookedUpBlock) {
  const bytes = writeProviderEvidence(evidence)
  return await verifyProviderEvidence(bytes, policyFrom(file), MADE_AT, lookedUp)
}

it.each(evidenceAcceptances)(
  'verifyProviderEvidence accepts evidence: $name',
  async (acceptance) => {
    const { evidence, policy } = buildProviderEvidence(acceptance.kind, acceptance)
    const { facts, checks } = await judge(evidence, policy, acceptance.lookedUp)
    requireChecks(checks)
    const names = checks.map(({ name }) => name)
    expect(names.slice(0, 12)).toEqual(Object.keys(EVIDENCE_CHECKS))
    expect(new Set(names).size).toBe(names.length)
    expect(facts?.tlsKeys.map(({ spkiSha256 }) => spkiSha256)).toEqual([TLS_KEY])
    expect(facts).toMatchObject({ isDebugOff: true, hasReplacedRoots: true, origin: ORIGIN })
  },
)

it.each(evidenceRefusals)('verifyProviderEvidence refuses with $code: $name', async (refusal) => {
  const { evidence, policy } = buildProviderEvidence(refusal.kind, refusal)
  const { checks } = await judge(evidence, policy, refusal.lookedUp)
  const failed = checks.filter(({ name, outcome }) => outcome === 'failed' && !name.includes(':'))
  const codes: Readonly<Record<string, string>> = EVIDENCE_CODES
  expect(failed.map(({ name, code }) => [name, code])).toEqual([
    [codes[refusal.code] ?? 'collateral', refusal.code],
  ])
  expect(() => requireChecks(checks)).toThrow(ProviderEvidenceError)
})

const blockOf = (checks: readonly ProviderCheck[]) =>
  checks.find(({ name }) => name === 'block nonce')
const ageOf = (checks: readonly ProviderCheck[]) => checks.find(({ name }) => name === 'age')

const BLOCK_SECONDS = MADE_AT.getTime() / 1000 - 60
const LOOKED_UP: LookedUpBlock = {
  chainId: 1,
  block: { hash: `0x${'B1'.repeat(32)}`, timestamp: BLOCK_SECONDS },
}
const NONCE_BLOCK = { chainId: 1, number: 17, hash: BLOCK_HASH }

it.each(['tinfoil v3 SNP', 'tinfoil v3 TDX', 'dstack', 'aci', 'nitro'] as const)(
  'evidence of %s whose hardware signed the nonce shows its block, and the block its age',
  async (kind) => {
    const { evidence, policy } = buildProviderEvidence(kind, { policy: { needs_block: true } })
    const { facts, checks } = await judge(evidence, policy, LOOKED_UP)
    requireChecks(checks)
    expect(blockOf(checks)).toMatchObject({ outcome: 'passed' })
    expect(ageOf(checks)).toMatchObject({ outcome: 'passed' })
    expect(facts).toMatchObject({ block: NONCE_BLOCK, blockTimeMs: BLOCK_SECONDS * 1000 })
  },
)

it.each([
  ['that was not looked up', undefined],
  ['of another chain than the asked one', { ...LOOKED_UP, chainId: 2 }],
] as const)('a block %s shows no age, which needs_block demands', async (_, lookedUp) => {
  const { evidence, policy } = buildProviderEvidence('dstack')
  const { facts, checks } = await judge(evidence, policy, lookedUp)
  requireChecks(checks)
  expect(ageOf(checks)).toMatchObject({ outcome: 'not checked', isWaived: true })
  expect(facts).toMatchObject({ block: NONCE_BLOCK, blockTimeMs: null })
  const demanded = await judge(evidence, { ...policy, needs_block: true }, lookedUp)
  expect(ageOf(demanded.checks)).toMatchObject({ outcome: 'not checked', isWaived: false })
  expect(() => requireChecks(demanded.checks)).toThrow('age, not checked: ')
})

it('evidence that states a time of 20 days later than its own passes no check of the age', async () => {
  const { evidence, policy } = buildProviderEvidence('dstack')
  const collateralOf = (ms: number) => new Date(MADE_AT.getTime() + ms)
  const redated = { ...evidence, fetchedAtMs: collateralOf(20 * 86_400_000).getTime() }
  const bytes = writeProviderEvidence(redated)
  const judgeAt = (lookedUp?: LookedUpBlock) =>
    verifyProviderEvidence(bytes, policyFrom(policy), collateralOf(20 * 86_400_000), lookedUp)
  expect(ageOf((await judgeAt()).checks)?.outcome).toBe('not checked')
  expect(ageOf((await judgeAt(LOOKED_UP)).checks)?.code).toBe('evidence_too_old')
})

it.each([
  ['a chain id in hex', { ...LOOKED_UP, chainId: '0x1' }],
  ['a hash without 0x', { chainId: 1, block: { hash: 'b1'.repeat(32), timestamp: 1 } }],
  ['a time as text', { chainId: 1, block: { hash: `0x${'b1'.repeat(32)}`, timestamp: '1' } }],
])(
  'verifyProviderEvidence throws PolicyError for a looked-up block with %s',
  async (_, lookedUp) => {
    const { evidence, policy } = buildProviderEvidence('dstack')
    await expect(judge(evidence, policy, lookedUp as LookedUpBlock)).rejects.toThrow(PolicyError)
  },
)

it('an answer without a nonce is accepted by a policy that accepts it, and shows no block', async () => {
  const { evidence, policy } = buildProviderEvidence('tinfoil v2')
  const { facts, checks } = await judge(evidence, policy)
  requireChecks(checks)
  expect(blockOf(checks)).toMatchObject({ outcome: 'not checked', isWaived: true })
  expect(facts?.block).toBeNull()
})

it('an answer without a nonce shows no block under no policy', async () => {
  const { evidence } = buildProviderEvidence('tinfoil v2')
  const bytes = writeProviderEvidence(evidence)
  const { facts, checks } = await verifyProviderEvidence(bytes, null, MADE_AT)
  expect(blockOf(checks)).toMatchObject({ outcome: 'not checked', isWaived: false })
  expect(facts?.block).toBeNull()
})

it('a nonce that the document states and the hardware did not sign shows no block', async () => {
  const { evidence, policy } = buildProviderEvidence('tinfoil v3 TDX', {
    nonce: providerNonce(new Uint8Array(32).fill(9), ORIGIN),
    answer: (answer) => Object.assign(answer.challenge, { nonce: NONCE_HEX }),
    evidence: { nonce: providerNonce(BLOCK_HASH, ORIGIN) },
  })
  const { facts, checks } = await judge(evidence, policy)
  const outcomes = checks.map(({ name, outcome }) => [name, outcome])
  expect(outcomes).toContainEqual(['challenge', 'passed'])
  expect(outcomes).toContainEqual(['key binding', 'failed'])
  expect(outcomes).toContainEqual(['block nonce', 'not checked'])
  expect(facts?.block).toBeNull()
})

/** Collateral as Tinfoil's machines put it into version 3 of their document. */
function entriesOf(collateral: ProviderEvidence['collateral']) {
  const base64 = (path: string) => {
    const kept = collateral.find(({ url }) => url.includes(path))
    return Buffer.from(kept?.body ?? '').toString('base64')
  }
  const entry = (format: string, data: object) => ({
    id: format,
    role: 'endorsement',
    format: `https://tinfoil.sh/collateral/${format}/v1`,
    subjects: ['cpu'],
    data,
  })
  const { attestations } = JSON.parse(Buffer.from(base64('/attestations/'), 'base64').toString())
  const responses = collateral
    .filter(({ url }) => url.includes('/certification/') || url.includes('IntelSGXRootCA'))
    .map(({ url, headers, body }) => ({
      url,
      headers:
        headers.size === 0 ? null : Object.fromEntries([...headers].map(([n, v]) => [n, [v]])),
      body_base64: Buffer.from(body).toString('base64'),
    }))
  const cert_chain_pem = Buffer.from(base64('/cert_chain'), 'base64').toString()
  return [
    entry('sigstore-code', { sigstore_bundle: attestations[0].bundle }),
    ...(responses.length > 0
      ? [entry('intel-pcs', { responses })]
      : [
          entry('amd-vcek', { vcek_der_base64: base64('?blSPL='), cert_chain_pem }),
          entry('amd-crl', { crl_der_base64: base64('/crl') }),
        ]),
  ]
}

it.each(['tinfoil v3 SNP', 'tinfoil v3 TDX'] as const)(
  'evidence of %s passes with the collateral that its document has',
  async (kind) => {
    const { evidence, policy } = buildProviderEvidence(kind)
    const [response] = evidence.responses
    if (response === undefined) throw new Error('expected an answer')
    const answer = JSON.parse(Buffer.from(response.body).toString())
    const body = Buffer.from(
      JSON.stringify({ ...answer, collateral: entriesOf(evidence.collateral) }),
    )
    const responses = [{ ...response, body: new Uint8Array(body) }]
    const { checks } = await judge({ ...evidence, responses, collateral: [] }, policy)
    requireChecks(checks)
  },
)

const page = readFileSync('attestation/providers/evidence/formats.md', 'utf8')

it.each(['tinfoil v3 SNP', 'tinfoil v3 TDX'] as const)(
  'formats.md has each format, and each member of the collateral, of evidence of %s',
  (kind) => {
    const { responses, collateral } = buildProviderEvidence(kind).evidence
    const answer = JSON.parse(Buffer.from(responses[0]?.body ?? '').toString())
    const sections = [answer.crypto_material, answer.device_evidence].map((section) =>
      Buffer.from(section, 'base64').toString(),
    )
    const entries = entriesOf(collateral)
    const text = [JSON.stringify(answer), ...sections, JSON.stringify(entries)].join('\n')
    const formats = [...text.matchAll(/https:\/\/tinfoil\.sh\/([a-z0-9/-]+)/g)].map(
      ([, format]) => format ?? '',
    )
    expect(formats.length).toBeGreaterThan(5)
    const members = entries.flatMap(({ data }) => Object.keys(data))
    expect([...formats, ...members].filter((one) => !page.includes(`\`${one}\``))).toEqual([])
  },
)

it.each([
  ['its snp_measurement, of a TDX machine', 'tinfoil v3 TDX', { snp_measurement: null }],
  ['its tdx_measurement, of a SEV-SNP machine', 'tinfoil v3 SNP', { tdx_measurement: null }],
  ['lower case', 'tinfoil v3 SNP', { snp_measurement: 'AB'.repeat(48) }],
] as const)('a signed build without %s is malformed', async (_, kind, changed) => {
  const predicate = predicateOf(MODEL_CONFIG, changed)
  const { evidence, policy } = buildProviderEvidence(kind, { predicate })
  const { checks } = await judge(evidence, policy)
  expect(checks.find(({ name }) => name === 'code')?.code).toBe('build_malformed')
})

it.each([
  ['AMD', 'https://kdsintf.amd.com/vcek/v1/Genoa/crl', true],
  ['AMD for VLEKs', 'https://other.example/vlek/v1/Genoa/crl', true],
  ['AMD below another path', 'https://mirror.example/amd/vcek/v1/Genoa/crl', false],
  ['AMD for a product with a digit', 'https://kdsintf.amd.com/vcek/v1/Genoa2/crl', false],
])('readKeptCollateral finds by the path, or does not find, the list of %s', (_, url, found) => {
  expect(readKeptCollateral([kept(url, 'list')]).snpList !== null).toBe(found)
})

it("readKeptCollateral finds Intel's answers below another path", () => {
  const { collateral } = buildProviderEvidence('dstack').evidence
  const mirrored = collateral.map((one) => {
    const { pathname, search } = new URL(one.url)
    return { ...one, url: `https://mirror.example/intel${pathname}${search}` }
  })
  expect(readKeptCollateral(mirrored).tdx).toEqual(readKeptCollateral(collateral).tdx)
  expect(readKeptCollateral(mirrored).tdx).not.toBeNull()
})

it.each(['tinfoil v3 SNP', 'tinfoil v3 TDX', 'dstack', 'aci', 'nitro'] as const)(
  'evidence of %s passes until the end that it states, and fails after it',
  async (kind) => {
    const { evidence, policy } = buildProviderEvidence(kind)
    const lasting = policyFrom({ ...policy, max_age_hours: 10_000_000 })
    const at = async (ms: number) =>
      await verifyProviderEvidence(writeProviderEvidence(evidence), lasting, new Date(ms))
    const { facts } = await at(MADE_AT.getTime())
    const endsAtMs = facts?.endsAtMs ?? 0
    expect(endsAtMs).toBeGreaterThan(MADE_AT.getTime())
    const margin = 1_000
    requireChecks((await at(endsAtMs - margin)).checks)
    const { checks } = await at(endsAtMs + margin)
    expect(() => requireChecks(checks)).toThrow(ProviderEvidenceError)
  },
)

it('evidence ends with the certificate of its GPU, if that is the first of its parts to end', async () => {
  const end = new Date(MADE_AT.getTime() + 60_000)
  const { evidence, policy } = buildProviderEvidence('tinfoil v3 SNP', {
    bound: ({ devices }) => devices.splice(0, 1, gpuItemUntil(end)),
  })
  const { facts, checks } = await judge(evidence, policy)
  requireChecks(checks)
  expect(facts?.endsAtMs).toBe(end.getTime())
})

const none = '77'.repeat(48)
it.each<[string, BuiltKind, EvidenceChanges, string, string]>([
  [
    'a machine that runs other code than the signed build',
    'tinfoil v3 SNP',
    { predicate: predicateOf(MODEL_CONFIG, { snp_measurement: none }) },
    'SEV-SNP: measurement',
    'measurement_mismatch',
  ],
  [
    'a machine with other firmware than the policy accepts',
    'tinfoil v3 TDX',
    { policy: { tdx: { evaluation_number_min: 18, platforms: [{ mrtd: none, rtmr0: none }] } } },
    'TDX: measurements',
    'measurement_mismatch',
  ],
  ...(['dstack', 'aci'] as const).map(
    (kind): [string, BuiltKind, EvidenceChanges, string, string] => [
      `an application of kind ${kind} that the policy does not list`,
      kind,
      { policy: { compose_hashes: ['77'.repeat(32)] } },
      'dstack: compose hash',
      'compose_not_accepted',
    ],
  ),
  [
    'a signed build that another repository made',
    'tinfoil v2',
    { policy: { release: { repository: 'example/other', refs: ['refs/tags/v1.0.0'] } } },
    'Sigstore: identity',
    'identity_repository',
  ],
  [
    'an ACI service where a GPU is required',
    'aci',
    { policy: { gpu: 'required' } },
    'GPU',
    'gpu_missing',
  ],
  [
    'a machine under a revoked certificate',
    'tinfoil v3 SNP',
    {
      collateral: (all) =>
        all.map((one) =>
          one.url.endsWith('/crl')
            ? kept(one.url, buildSnpList({ revoked: [entry(0x10001)] }))
            : one,
        ),
    },
    'SEV-SNP: revocation',
    'certificate_revoked',
  ],
])('%s is refused by one check', async (_, kind, changes, name, code) => {
  const { evidence, policy } = buildProviderEvidence(kind, changes)
  const { checks } = await judge(evidence, policy)
  const failed = checks.filter(({ outcome }) => outcome === 'failed')
  expect(failed.map((check) => [check.name, check.code])).toEqual([[name, code]])
  expect(() => requireChecks(checks)).toThrow(ProviderEvidenceError)
  const outcomeOf = (check: string) => checks.find((one) => one.name === check)?.outcome
  if (/compose|Sigstore|SNP: measurement/.test(name)) expect(outcomeOf('code')).not.toBe('passed')
  if (name === 'TDX: measurements') expect(outcomeOf('weights')).toBe('not checked')
})

it('an image of the OS that is for development is refused', async () => {
  const { evidence, policy } = buildProviderEvidence('dstack')
  const file = JSON.parse(JSON.stringify(policy))
  const metadata = '{"is_dev":true}'
  const hash = Buffer.from(
    await globalThis.crypto.subtle.digest('SHA-256', Buffer.from(metadata)),
  ).toString('hex')
  Object.assign(file.images[0], { metadata, checksums: `${hash}  metadata.json\n` })
  const { checks } = await judge(evidence, file)
  const failed = checks.find(({ name }) => name === 'dstack: OS image release')
  expect(failed?.code).toBe('os_image_is_dev')
  expect(checks.find(({ name }) => name === 'code')?.outcome).toBe('not checked')
})

it('measurements in the policy accept a machine without a signed build', async () => {
  const snp = ['4d'.repeat(48)]
  const { evidence, policy } = buildProviderEvidence('tinfoil v2', {
    collateral: (all) => all.filter(({ url }) => !url.includes('/attestations/')),
    policy: { release: undefined, measurements: { snp } },
  })
  const { facts, checks } = await judge(evidence, policy)
  requireChecks(checks)
  expect(facts?.code).toMatchObject({ by: 'measurements', repository: null })
})

it.each(['tinfoil v3 SNP', 'tinfoil v3 TDX', 'dstack', 'aci', 'nitro'] as const)(
  'evidence of %s without a policy shows its facts, and is not accepted',
  async (kind) => {
    const { evidence } = buildProviderEvidence(kind)
    const bytes = writeProviderEvidence(evidence)
    const { facts, checks } = await verifyProviderEvidence(bytes, null, MADE_AT)
    expect(facts?.origin).toBe(ORIGIN)
    expect(facts?.model.weights).not.toBe('hardware_proven')
    expect(() => requireChecks(checks)).toThrow(ProviderEvidenceError)
  },
)

it('version 2 of Tinfoil without leave in the policy leaves the challenge open', async () => {
  const { evidence, policy } = buildProviderEvidence('tinfoil v2', {
    policy: { accepts_no_nonce: undefined },
  })
  const { checks } = await judge(evidence, policy)
  expect(checks.find(({ name }) => name === 'challenge')).toMatchObject({
    outcome: 'not checked',
    isWaived: false,
  })
})

it('evidence without collateral leaves the checks of the makers open', async () => {
  const { evidence, policy } = buildProviderEvidence('dstack', { collateral: () => [] })
  const { checks } = await judge(evidence, policy)
  expect(checks.filter(({ outcome }) => outcome === 'failed')).toEqual([])
  expect(checks.find(({ name }) => name === 'TDX: TCB status')?.outcome).toBe('not checked')
  expect(() => requireChecks(checks)).toThrow(expect.objectContaining({ code: 'not_checked' }))
})

it('a policy that parseProviderPolicy did not return is a PolicyError', async () => {
  const { evidence, policy } = buildProviderEvidence('nitro')
  const made = { ...policyFrom(policy) }
  const bytes = writeProviderEvidence(evidence)
  await expect(verifyProviderEvidence(bytes, made, MADE_AT)).rejects.toThrow(PolicyError)
})

it('a machine of Tinfoil gives keys, code, GPU and weights', async () => {
  const { evidence, policy } = buildProviderEvidence('tinfoil v3 SNP')
  const { facts } = await judge(evidence, policy)
  expect(facts).toMatchObject({
    kind: 'tinfoil',
    tee: 'SEV-SNP',
    encryptionKey: HPKE_KEY,
    tcb: { status: 'committed', advisories: [], versions: { snp: 23 } },
    code: { by: 'release', repository: 'example/model', release: 'v1.0.0' },
    gpus: ['GH100 A01 GSP FMC LF'],
    model: {
      weights: 'hardware_proven',
      models: [{ name: 'example-31b', source: 'example/model-31B@fb9ae262', rootHash: ROOT_HASH }],
    },
  })
})

it('a service that names a model has claimed weights', async () => {
  const { evidence, policy } = buildProviderEvidence('dstack', {
    answer: ({ gateway_attestation: report }) => (report.model_name = 'example/model'),
  })
  const { facts } = await judge(evidence, policy)
  expect(facts?.model).toMatchObject({ weights: 'provider_claimed', models: [] })
  expect(facts?.tcb?.status).toBe('UpToDate')
})

const { evidence } = buildProviderEvidence('nitro')
const json = JSON.parse(Buffer.from(writeProviderEvidence(evidence)).toString())

it('the document is read as it was written', () => {
  expect(parseProviderEvidence(writeProviderEvidence(evidence))).toEqual(evidence)
})

it('the nonce is SHA-256 of the block hash and the UTF-8 of the origin', () => {
  const nonce = Buffer.from(providerNonce(BLOCK_HASH, ORIGIN)).toString('hex')
  expect(nonce).toBe('ffc3c66f9af794ec881f61f56ca2c3b0d40f173fec858cbcbe45253a0fb4c774')
  expect(json.nonce).toBe(nonce)
})

it.each([
  ['another version', { version: 2 }],
  ['an unknown member', { more: 1 }],
  ['another kind', { kind: 'chutes' }],
  ['an origin with a path', { origin: 'https://provider.example/' }],
  ['an origin without TLS', { origin: 'http://provider.example' }],
  ['an answer from another origin', { origin: 'https://another.example' }],
  ['an upper-case nonce', { nonce: 'AB'.repeat(32) }],
  ['a negative time', { fetched_at: -1 }],
  ['a block without its hash', { block: { chain_id: 1, number: 1 } }],
  ['a block hash without 0x', { block: { chain_id: 1, number: 1, hash: '00'.repeat(32) } }],
  ['nine answers', { responses: new Array(9).fill(json.responses[0]) }],
  ['an upper-case header', { responses: [{ ...json.responses[0], headers: { Date: 'x' } }] }],
  ['a header with an underscore', { responses: [{ ...json.responses[0], headers: { x_a: 'x' } }] }],
  [
    'a header with a name of 65 characters',
    { responses: [{ ...json.responses[0], headers: { ['x'.repeat(65)]: 'x' } }] },
  ],
  ['a body that is no base64', { responses: [{ ...json.responses[0], body: 'a' }] }],
  ['a URL in another form', { collateral: [{ ...json.responses[0], url: 'https://a.example' }] }],
])('parseProviderEvidence refuses %s', async (_, changed) => {
  const bytes = Buffer.from(JSON.stringify({ ...json, ...changed }))
  expect(() => parseProviderEvidence(bytes)).toThrow(
    expect.objectContaining({ code: 'evidence_malformed' }),
  )
  const { facts, checks } = await verifyProviderEvidence(bytes, null, MADE_AT)
  expect(facts).toBeNull()
  expect(checks[0]).toMatchObject({ outcome: 'failed', code: 'evidence_malformed' })
})

it('parseProviderEvidence refuses more bytes than its limit', () => {
  expect(() => parseProviderEvidence(new Uint8Array(4 * 1024 * 1024 + 1))).toThrow(
    expect.objectContaining({ code: 'evidence_size' }),
  )
})
