import { describe, expect, it } from 'vitest'
import { encodeHex } from '#attestation/bytes.ts'
import { checkMeasurements } from '#attestation/nitro/checks.ts'
import { decodeAttestationPayload } from '#attestation/nitro/document.ts'
import {
  type AttestationPolicy,
  type MeasurementSet,
  PolicyError,
  parseRoots,
} from '#attestation/nitro/policy.ts'
import {
  createAttestationVerifier,
  verifyAttestation,
} from '#attestation/nitro/verify-attestation.ts'
import { buildEntry } from '../../support/build-release.ts'
import { nearly } from '../../support/case-table.ts'
import { buildChain, MADE_AT, partsOf } from '../../support/nitro-builder/development-pki.ts'
import {
  buildDocument,
  PCR_VALUES,
  standardChain,
} from '../../support/nitro-builder/document-builder.ts'
import { NITRO_FIXTURES, nitroFixtures, readFixture } from '../../support/nitro-fixtures.ts'

const HOUR_MS = 3_600_000
const policy: AttestationPolicy = { measurements: 'any', roots: [standardChain.rootSha256] }
const codeOf = (verification: Promise<unknown>) =>
  verification.then(
    () => 'accepted',
    (error: { code?: string }) => error.code,
  )
const lengthOf = (bytes: Uint8Array | null) => (bytes === null ? 'null' : `bytes[${bytes.length}]`)

describe.runIf(NITRO_FIXTURES.isMet)(NITRO_FIXTURES.title('a document that AWS signed'), () => {
  const aws = nitroFixtures.filter(({ kind }) => kind === 'aws')
  const demand = (debug: boolean): AttestationPolicy => ({
    measurements: 'any',
    allowDebug: debug,
  })

  it.each(aws)(
    'a document of AWS is accepted at its time with its known facts: $file',
    async (fixture) => {
      const bytes = readFixture(fixture)
      const at = new Date(fixture.valid_at * 1000)
      const facts = await verifyAttestation(bytes, demand(fixture.debug_mode_zero_pcrs), at)
      const nonzero = [...facts.measurements].filter(([, pcr]) => pcr.some((byte) => byte !== 0))
      expect({
        module_id: facts.moduleId,
        timestamp_ms: facts.timestampMs,
        debug_mode_zero_pcrs: facts.isDebugMode,
        pcr_indexes: [...facts.measurements.keys()],
        pcrs_nonzero_decoded: Object.fromEntries(
          nonzero.map(([index, pcr]) => [index, encodeHex(pcr)]),
        ),
        public_key: lengthOf(facts.publicKey),
        user_data: lengthOf(facts.userData),
        nonce: lengthOf(facts.nonce),
      }).toEqual({
        module_id: fixture.module_id,
        timestamp_ms: fixture.timestamp_ms,
        debug_mode_zero_pcrs: fixture.debug_mode_zero_pcrs,
        pcr_indexes: fixture.pcr_indexes,
        pcrs_nonzero_decoded: fixture.pcrs_nonzero_decoded,
        public_key: fixture.public_key,
        user_data: fixture.user_data,
        nonce: fixture.nonce,
      })
      expect(facts.certificates.at(-1)?.notBeforeMs).toBe(Date.parse(fixture.leaf_not_before))
      expect(facts.certificates.at(-1)?.notAfterMs).toBe(Date.parse(fixture.leaf_not_after))
      expect(facts.bindings).toMatchObject({
        pcr4: true,
        leafCommonName: true,
        issuerCommonName: true,
      })
      expect(facts.unknownKeys).toEqual([])
    },
  )

  it.each(aws)(
    'a document of AWS is refused before and after the life of its leaf: $file',
    async (fixture) => {
      const bytes = readFixture(fixture)
      const at = (text: string, ms: number) => new Date(Date.parse(text) + ms)
      const verify = (time: Date) =>
        codeOf(verifyAttestation(bytes, demand(fixture.debug_mode_zero_pcrs), time))
      expect(await verify(at(fixture.leaf_not_before, -61_000))).toBe('certificate_not_yet_valid')
      expect(await verify(at(fixture.leaf_not_after, 1000))).toBe('certificate_expired')
    },
  )

  it.each(aws)(
    'a document of AWS is accepted by a clock that is a minute behind, and by none further: $file',
    async (fixture) => {
      const verify = (behindMs: number) => {
        const time = new Date(fixture.timestamp_ms - behindMs)
        return verifyAttestation(readFixture(fixture), demand(fixture.debug_mode_zero_pcrs), time)
      }
      await expect(verify(60_000)).resolves.toMatchObject({ timestampMs: fixture.timestamp_ms })
      const refusal = await verify(60_001).catch((fault: unknown) => fault)
      expect(refusal).toMatchObject({
        code: expect.stringMatching(/^(certificate_not_yet_valid|document_from_future)$/),
        message: expect.stringContaining("is this machine's clock right?"),
      })
    },
  )

  it.each(aws.filter((fixture) => fixture.debug_mode_zero_pcrs))(
    'a document of AWS in debug mode is refused unless allowed: $file',
    async (fixture) => {
      const at = new Date(fixture.valid_at * 1000)
      expect(await codeOf(verifyAttestation(readFixture(fixture), demand(false), at))).toBe(
        'debug_mode',
      )
    },
  )

  it.each(aws)(
    'a document of AWS is refused with one bit of its signature flipped, even in historical mode: $file',
    async (fixture) => {
      const bytes = Uint8Array.from(readFixture(fixture))
      const index = bytes.length - 1 - (fixture.timestamp_ms % 96)
      bytes[index] = (bytes[index] ?? 0) ^ (1 << (fixture.timestamp_ms % 8))
      const at = new Date(fixture.valid_at * 1000)
      for (const mode of ['current', 'historical'] as const)
        expect(await codeOf(verifyAttestation(bytes, { ...demand(true), mode }, at))).toBe(
          'signature_invalid',
        )
      const facts = await verifyAttestation(
        readFixture(fixture),
        { ...demand(true), mode: 'historical' },
        new Date(0),
      )
      expect(facts.verifiedAtMs).toBe(fixture.timestamp_ms)
    },
  )

  it('a document under another root is refused, and is accepted when that root is trusted', async () => {
    const [fixture] = nitroFixtures.filter(({ file }) => file.includes('custom-pcr16'))
    expect(fixture).toBeDefined()
    if (!fixture) return
    const bytes = readFixture(fixture)
    const at = new Date(fixture.valid_at * 1000)
    expect(await codeOf(verifyAttestation(bytes, demand(true), at))).toBe('root_untrusted')
    const roots = parseRoots(decodeAttestationPayload(bytes).cabundle[0] ?? new Uint8Array())
    const facts = await verifyAttestation(bytes, { ...demand(true), roots }, at)
    expect(facts.certificates.map(({ subject }) => subject)).toEqual(['CN=root', 'CN=leaf'])
  })
})

it('a verified document gives what it carries and each rule with its outcome', async () => {
  const facts = await verifyAttestation(
    buildDocument({ fields: { something_new: 1 } }),
    { ...policy, measurements: [new Map([[9, new Uint8Array(48).fill(1)]]), PCR_VALUES] },
    MADE_AT,
  )
  expect(facts).toMatchObject({
    moduleId: 'i-0123456789abcdef0-enc0123456789abcdef',
    timestampMs: MADE_AT.getTime(),
    verifiedAtMs: MADE_AT.getTime(),
    mode: 'current',
    matchedSet: 1,
    isDebugMode: false,
    unknownKeys: ['something_new'],
    bindings: {
      instanceId: 'i-0123456789abcdef0',
      pcr4: true,
      leafCommonName: true,
      issuerCommonName: true,
    },
  })
  expect(facts.publicKey).toEqual(new Uint8Array(Buffer.from('the public key')))
  expect(facts.certificates).toHaveLength(5)
  expect(facts.certificates[0]?.sha256).toEqual(new Uint8Array(standardChain.rootSha256))
  expect(facts.certificates[1]?.issuerEncoding).toEqual(partsOf(0).subject)
  const notPassed = facts.rules.filter(({ outcome }) => outcome !== 'passed')
  expect(notPassed.map(({ rule, outcome }) => [rule, outcome])).toEqual([
    [19, 'not checked'],
    [22, 'not checked'],
    [25, 'reported'],
  ])
})

it('a verified document tells an absent field from an empty field', async () => {
  const document = buildDocument({
    fields: { public_key: null, user_data: new Uint8Array(), nonce: undefined },
  })
  const facts = await verifyAttestation(document, policy, MADE_AT)
  expect([facts.publicKey, facts.userData, facts.nonce]).toEqual([null, new Uint8Array(), null])
})

it('bindings that do not hold are reported and do not make a document refused', async () => {
  const verify = async (fields: NonNullable<Parameters<typeof buildDocument>[0]>['fields']) =>
    (await verifyAttestation(buildDocument({ fields }), policy, MADE_AT)).bindings
  const others = { leafCommonName: false, issuerCommonName: false }
  expect(await verify({ module_id: 'i-0fffffffffffffff0-enc00' })).toMatchObject(others)
  const pcrs = new Map([...PCR_VALUES, [4, nearly(PCR_VALUES.get(4) ?? new Uint8Array())]])
  expect(await verify({ pcrs })).toMatchObject({ pcr4: false, leafCommonName: true })
})

it('a caller who changes the bytes meanwhile does not change the verification', async () => {
  const bytes = buildDocument()
  const verification = verifyAttestation(bytes, policy, MADE_AT)
  bytes.fill(0)
  expect((await verification).moduleId).toBe('i-0123456789abcdef0-enc0123456789abcdef')
})

it('a caller who changes the bytes of facts does not change the next verification', async () => {
  const first = await verifyAttestation(buildDocument(), policy, MADE_AT)
  const before = structuredClone(first.certificates)
  for (const { issuerEncoding, serial, sha256 } of first.certificates)
    for (const bytes of [issuerEncoding, serial, sha256]) bytes.fill(0)
  const second = await verifyAttestation(buildDocument(), policy, MADE_AT)
  expect(second.certificates).toEqual(before)
})

it('historical verification does not detect that the enclave is gone or that its key was stolen', async () => {
  const historical = { ...policy, mode: 'historical' } as const
  const facts = await verifyAttestation(buildDocument(), historical, new Date('2099-01-01'))
  expect(facts.rules[20]).toMatchObject({
    outcome: 'passed',
    detail: expect.stringContaining('age not checked'),
  })
})

it('a known chain is refused when its time, root or revocation no longer hold', async () => {
  const verifier = createAttestationVerifier()
  const document = buildDocument()
  await verifier.verify(document, policy, MADE_AT)
  const revoked = [{ issuer: partsOf(2).issuer, serial: Uint8Array.of(0x70, 2) }]
  const late = new Date(MADE_AT.getTime() + 3 * HOUR_MS)
  expect(await codeOf(verifier.verify(document, policy, late))).toBe('certificate_expired')
  expect(await codeOf(verifier.verify(document, { ...policy, revoked }, MADE_AT))).toBe(
    'certificate_revoked',
  )
  expect(await codeOf(verifier.verify(document, { measurements: 'any' }, MADE_AT))).toBe(
    'root_untrusted',
  )
  expect(await codeOf(verifier.verify(document, policy, MADE_AT))).toBe('accepted')
})

it('the signature of each document under a known chain is verified', async () => {
  const verifier = createAttestationVerifier()
  await verifier.verify(buildDocument(), policy, MADE_AT)
  const forged = buildDocument({ signature: new Uint8Array(96).fill(1) })
  expect(await codeOf(verifier.verify(forged, policy, MADE_AT))).toBe('signature_invalid')
})

it('a chain that did not hold is not kept in the cache', async () => {
  const verifier = createAttestationVerifier()
  const chain = buildChain({ level: 4, parts: { sign: partsOf(2).sign } })
  for (const _ of [1, 2])
    expect(await codeOf(verifier.verify(buildDocument({ chain }), policy, MADE_AT))).toBe(
      'certificate_signature_invalid',
    )
})

it.each<[string, unknown]>([
  ['an empty Map', new Map()],
  ['an empty list', []],
  ['a list of entries', [...PCR_VALUES]],
])(
  'a measurement set that expects nothing matches no document, even without a policy: %s',
  (_, set) => {
    const document = decodeAttestationPayload(buildDocument())
    const expectation = { measurements: [set as MeasurementSet], releases: [] }
    expect(() => checkMeasurements(document, expectation)).toThrow(
      expect.objectContaining({ code: 'measurements_not_given' }),
    )
  },
)

// Debug mode, PCRs and a nonce of zeros: what a value of the wrong type would match.
const zeros = new Uint8Array(48)
const document = buildDocument({
  fields: { pcrs: new Map([...PCR_VALUES, [8, zeros]]), nonce: new Uint8Array(3) },
})
const entry = buildEntry()
it.each<[string, object]>([
  ['no roots', { roots: [] }],
  ['a root that is no fingerprint', { roots: [new Uint8Array(31)] }],
  ['a fingerprint for a list of roots', { roots: standardChain.rootSha256 }],
  ['a root in hex', { roots: [encodeHex(standardChain.rootSha256)] }],
  ['a root as text of 32 characters', { roots: ['x'.repeat(32)] }],
  ['a list of roots with a gap', { roots: Object.assign([], { 1: standardChain.rootSha256 }) }],
  ['roots of undefined', { roots: undefined }],
  ['a negative age', { maxAgeMs: -1 }],
  ['an age that is no number', { maxAgeMs: Number.NaN }],
  ['an age as text', { maxAgeMs: '1' }],
  ['a skew as text', { futureSkewMs: '1' }],
  ['a skew that is no number', { futureSkewMs: Number.NaN }],
  ['an age in historical mode', { mode: 'historical', maxAgeMs: 1 }],
  ['a mode that does not exist', { mode: 'Historical' }],
  ['a nonce of 1025 bytes', { nonce: new Uint8Array(1025) }],
  ['a nonce of null', { nonce: null }],
  ['a nonce of undefined', { nonce: undefined }],
  ['a nonce as text', { nonce: 'abc' }],
  ['a nonce as empty text', { nonce: '' }],
  ['a nonce as an array', { nonce: [0, 0, 0] }],
  ['a nonce under another name', { nonse: new Uint8Array(3) }],
  ['allowDebug as text', { allowDebug: 'false' }],
  ['a measurement of 32 bytes', { measurements: [new Map([[0, new Uint8Array(32)]])] }],
  ['a measurement of PCR32', { measurements: [new Map([[32, zeros]])] }],
  ['a measurement in hex', { measurements: [new Map([[0, encodeHex(zeros)]])] }],
  ['a measurement as text of 48 characters', { measurements: [new Map([[8, 'x'.repeat(48)]])] }],
  ['a measurement as an array', { measurements: [new Map([[8, Array.from(zeros)]])] }],
  ['measurements left out', { measurements: undefined }],
  ['measurements of null', { measurements: null }],
  ['measurements of another word', { measurements: 'Any' }],
  ['measurements of empty text', { measurements: '' }],
  ['a set for a list of sets', { measurements: PCR_VALUES }],
  ['an empty set for a list of sets', { measurements: new Map() }],
  ['an empty set', { measurements: [new Map()] }],
  ['an empty set beside one that matches', { measurements: [PCR_VALUES, new Map()] }],
  ['a set as an empty list', { measurements: [[]] }],
  ['a set as a list of entries', { measurements: [[...PCR_VALUES]] }],
  ['a set as an object', { measurements: [Object.fromEntries(PCR_VALUES)] }],
  ['a set as an empty object', { measurements: [{}] }],
  ['a set of undefined', { measurements: [undefined] }],
  ['a set that only has a size', { measurements: [{ size: 1, *[Symbol.iterator]() {} }] }],
  ['an object for a list of sets', { measurements: {} }],
  ['a list of sets with a gap', { measurements: Object.assign([], { 1: PCR_VALUES }) }],
  ['releases that are no list, beside any measurement', { releases: new Set([entry]) }],
  ['a release that is no entry', { measurements: [], releases: [entry.release] }],
  ['an entry without a release', { measurements: [], releases: [{ ...entry, release: null }] }],
  [
    'an entry that is revoked by nothing',
    { measurements: [], releases: [{ ...entry, revoked: '' }] },
  ],
  [
    'an entry of a release that measures nothing',
    {
      measurements: [],
      releases: [{ ...entry, release: { ...entry.release, measurements: {} } }],
    },
  ],
  ['an entry without measurements', { measurements: [], releases: [{ ...entry, release: {} }] }],
  ['revoked certificates in hex', { revoked: [{ issuer: '30', serial: '01' }] }],
  ['revoked certificates of null', { revoked: null }],
  ['revoked certificates that are no list', { revoked: {} }],
])('a senseless policy is refused before the document is looked at: %s', async (_, change) => {
  for (const bytes of [document, new Uint8Array()])
    await expect(verifyAttestation(bytes, { ...policy, ...change }, MADE_AT)).rejects.toThrow(
      PolicyError,
    )
})

it.each([null, undefined, 'any'])('a value that is no policy is refused: %s', async (none) => {
  const verification = verifyAttestation(document, none as unknown as AttestationPolicy, MADE_AT)
  await expect(verification).rejects.toThrow(PolicyError)
})

it.each<[string, unknown]>([
  ['an invalid Date', new Date(Number.NaN)],
  ['a number', MADE_AT.getTime()],
  ['text', MADE_AT.toISOString()],
  ['what compares with nothing', { getTime: () => undefined }],
  ['nothing', undefined],
])('a value that is no time is refused: %s', async (_, at) => {
  for (const mode of ['current', 'historical'] as const)
    await expect(verifyAttestation(document, { ...policy, mode }, at as Date)).rejects.toThrow(
      PolicyError,
    )
})

it.each<[string, unknown]>([
  ['an ArrayBuffer, which has no length', document.slice().buffer],
  ['text', 'document'],
  ['an array', [...document]],
])('a document that is no byte array is refused: %s', async (_, bytes) => {
  await expect(verifyAttestation(bytes as Uint8Array, policy, MADE_AT)).rejects.toThrow(PolicyError)
})
