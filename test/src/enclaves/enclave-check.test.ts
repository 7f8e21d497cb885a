import { randomBytes } from 'node:crypto'
import { expect, it } from 'vitest'
import { decodeBase64, decodeHex, encodeBase64, encodeHex } from '#attestation/bytes.ts'
import { digestBootConfiguration } from '#attestation/evidence/boot-configuration.ts'
import { AttestationError } from '#attestation/nitro/attestation-error.ts'
import type { ReleaseEntry } from '#attestation/release/release-list.ts'
import { type Identity, PROTOCOL_VERSION } from '#enclave/protocol/enclave-api.ts'
import { findReleaseFault } from '#src/enclaves/accepted-releases.ts'
import {
  createAttestationCheck,
  createEnclaveCheck,
  FAULT_AGE_MAX_MS,
  findEnclaveFaults,
} from '#src/enclaves/enclave-check.ts'
import { entryNamed } from '../../support/enclave-fleet.ts'
import { NITRO_FIXTURES, nitroFixtures, readFixture } from '../../support/nitro-fixtures.ts'
import { openSoftwareNsm } from '../../support/software-nsm.ts'

const domain = { chainId: 7, contract: `0x${'ab'.repeat(20)}` }
const provider = { name: 'acme', origin: 'https://api.example.com', path: '/v1', models: ['*'] }
const HOUR_MS = 3_600_000
const publicKey = randomBytes(65)
const boot = {
  protocol_version: PROTOCOL_VERSION,
  providers: [provider],
  ca_sha256: '00'.repeat(32),
  chain_id: domain.chainId,
  contract: domain.contract,
}

async function makeIdentity(userData: Uint8Array, fill?: number): Promise<Identity> {
  const register = new Uint8Array(48).fill(fill ?? 0)
  const measurements = { pcr0: register, pcr1: register, pcr2: register }
  const measured = fill === undefined ? {} : { measurements }
  const nsm = await openSoftwareNsm({ rootFile: null, now: Date.now, ...measured })
  const document = await nsm.attest({ publicKey, userData, nonce: null })
  nsm.close()
  return {
    boot_configuration: boot,
    public_key: `0x${encodeHex(publicKey)}`,
    notary: `0x${'00'.repeat(20)}`,
    attestation: Buffer.from(document).toString('base64'),
    encryption_keys: [],
    log: { size: 0, acknowledged: 0 },
  }
}

const identity = await makeIdentity(randomBytes(32))
/** Its document is over its configuration, and measures as release a1. */
const bound = await makeIdentity(digestBootConfiguration(boot), 0xa1)

function faultsOf(more: object = {}, isProduction = false): Promise<readonly string[]> {
  const boot_configuration = { ...boot, ...more }
  return findEnclaveFaults(
    { ...identity, boot_configuration },
    { domain, isProduction, at: new Date() },
  )
}

const msOf = (text: string) => Date.parse(text)
const NOW = msOf('2026-06-01T12:00:00Z')
const factsOf = (name: string, timestampMs = NOW) => {
  const register = decodeHex(name.repeat(48))
  return { timestampMs, measurements: new Map([0, 1, 2].map((index) => [index, register])) }
}

it('findEnclaveFaults names another protocol, chain and contract together', async () => {
  const faults = await faultsOf({
    protocol_version: 99,
    chain_id: 8,
    contract: `0x${'cd'.repeat(20)}`,
  })
  expect(faults).toHaveLength(3)
  expect(faults.join()).toMatch(
    /protocol version 1, got 99.*chain 7, got 8.*contract 0xab.*got 0xcd/,
  )
})

it('findEnclaveFaults refuses a simulated security module in production, and says what it may be', async () => {
  expect(await faultsOf({}, true)).toEqual([
    expect.stringContaining('root_untrusted: is its security module simulated?'),
  ])
})

it('findEnclaveFaults judges measurements by the accepted releases, also of a simulated module', async () => {
  const judge = (releases: readonly ReleaseEntry[]) =>
    findEnclaveFaults(bound, { domain, isProduction: false, releases, at: new Date() })
  expect(await judge([entryNamed('a1')])).toEqual([])
  expect(await judge([entryNamed('a2')])).toEqual([
    expect.stringContaining('of an accepted release'),
  ])
  const revoked = { at: '2026-01-01T00:00:00Z', reason: 'weak' }
  expect(await judge([entryNamed('a1', { revoked })])).toEqual([
    expect.stringContaining('was revoked'),
  ])
})

it('findEnclaveFaults takes no document of another key or configuration for that of an accepted release', async () => {
  const expected = { domain, isProduction: false, releases: [entryNamed('a1')], at: new Date() }
  const boot_configuration = { ...boot, ca_sha256: '11'.repeat(32) }
  expect(await findEnclaveFaults({ ...bound, boot_configuration }, expected)).toEqual([
    expect.stringContaining('the digest of its boot configuration'),
  ])
  const otherKey = { ...bound, public_key: `0x${'04'.repeat(65)}` }
  expect(await findEnclaveFaults(otherKey, expected)).toEqual([
    expect.stringContaining('to carry its key'),
  ])
  const broken = { ...bound, attestation: Buffer.from('no document').toString('base64') }
  expect(await findEnclaveFaults(broken, expected)).toEqual([
    expect.stringContaining('enclave: expected'),
  ])
})

it('findEnclaveFaults refuses providers in the clear in production, each by name', async () => {
  const providers = [provider, { ...provider, name: 'demo', origin: 'http://127.0.0.1:1' }]
  const faults = await faultsOf({ providers }, true)
  expect(faults[0]).toBe('enclave: expected production to reach provider demo over https')
})

it('findEnclaveFaults takes a simulated security module in staging, and else all that production wants', async () => {
  const expected = { domain, isProduction: true, isStaging: true, at: new Date() }
  expect(await findEnclaveFaults(bound, expected)).toEqual([])
  const providers = [{ ...provider, origin: 'http://127.0.0.1:1' }]
  const boot_configuration = { ...boot, providers }
  expect(await findEnclaveFaults({ ...bound, boot_configuration }, expected)).toEqual([
    expect.stringContaining('over https'),
    expect.stringContaining('the digest of its boot configuration'),
  ])
  expect(await findEnclaveFaults({ ...bound, attestation: 'AAAA' }, expected)).toEqual([
    expect.stringContaining('expected an attestation document'),
  ])
})

it.runIf(NITRO_FIXTURES.isMet)(
  NITRO_FIXTURES.title('findEnclaveFaults refuses a document of AWS in staging'),
  async () => {
    const [real] = nitroFixtures.filter(({ kind }) => kind === 'aws')
    if (real === undefined) throw new Error('expected a document of AWS')
    const attestation = encodeBase64(readFixture(real))
    const at = new Date(real.valid_at * 1000)
    const faults = await findEnclaveFaults(
      { ...identity, attestation },
      { domain, isProduction: true, isStaging: true, at },
    )
    expect(faults[0]).toMatch(/expected a simulated security module in staging/)
  },
)

const createCheckBy = (
  clock: { readonly nowMs: number; readonly sinceStartMs: number },
  releases = (): readonly ReleaseEntry[] => [entryNamed('a1')],
) =>
  createEnclaveCheck({
    domain,
    isProduction: false,
    releases,
    now: () => clock.nowMs,
    monotonic: () => clock.sinceStartMs,
  })

it('createEnclaveCheck goes by what is accepted at each time, and by when the certificates of its document end', async () => {
  const clock = { nowMs: Date.now(), sinceStartMs: 0 }
  let releases: readonly ReleaseEntry[] = [entryNamed('a1')]
  const check = createCheckBy(clock, () => releases)
  expect(await check(bound)).toEqual([])
  const endsAt = new Date(clock.nowMs + 60_000).toISOString().replace(/\.\d{3}Z$/, 'Z')
  releases = [entryNamed('a1', { accepted_until: endsAt })]
  expect(await check(bound)).toEqual([])
  clock.nowMs += 61_000
  expect(await check(bound)).toEqual([expect.stringContaining('was accepted until')])
  releases = [entryNamed('a1')]
  expect(await check(bound)).toEqual([])
  clock.nowMs += 4 * 3_600_000
  expect(await check(bound)).toEqual([expect.stringContaining('expected an attestation document')])
})

it('createEnclaveCheck looks again, after a while, at a document that did not hold', async () => {
  const goodMs = Date.now()
  const clock = { nowMs: goodMs - 24 * 3_600_000, sinceStartMs: 0 }
  const check = createCheckBy(clock)
  expect(await check(bound)).toHaveLength(1)
  clock.nowMs = goodMs
  clock.sinceStartMs = FAULT_AGE_MAX_MS - 1
  expect(await check(bound)).toHaveLength(1)
  clock.sinceStartMs++
  expect(await check(bound)).toEqual([])
})

it.each([
  ['forward', 30 * 24 * 3_600_000],
  ['back', -30 * 24 * 3_600_000],
])(
  'an enclave is refused for a while only after the clock was set %s and right again',
  async (_, aheadMs) => {
    const clock = { nowMs: Date.now(), sinceStartMs: 0 }
    const check = createCheckBy(clock)
    expect(await check(bound)).toEqual([])
    clock.nowMs += aheadMs
    expect(await check(bound)).toEqual([
      expect.stringContaining('expected an attestation document'),
    ])
    clock.nowMs -= aheadMs
    clock.sinceStartMs += FAULT_AGE_MAX_MS
    expect(await check(bound)).toEqual([])
  },
)

it('findReleaseFault names the image of an enclave that is of no release', () => {
  expect(findReleaseFault(factsOf('bb'), [entryNamed('a1')], NOW)).toContain(
    `PCR0 ${'bb'.repeat(48)}`,
  )
  expect(findReleaseFault(factsOf('bb'), [], NOW)).not.toBeNull()
})

it('findReleaseFault needs every register of one release', () => {
  const facts = factsOf('a1')
  const mixed = {
    ...facts,
    measurements: new Map([...facts.measurements, [2, decodeHex('a2'.repeat(48))]]),
  }
  expect(findReleaseFault(mixed, [entryNamed('a1'), entryNamed('a2')], NOW)).not.toBeNull()
})

it.each([
  ['revoked', { revoked: { at: '2026-05-01T00:00:00Z', reason: 'weak' } }, 'was revoked'],
  ['expired at this moment', { accepted_until: '2026-06-01T12:00:00Z' }, 'was accepted until'],
  ['not accepted yet', { accepted_from: '2026-06-01T12:00:01Z' }, 'is accepted from'],
])('findReleaseFault refuses a release that is %s', (_, over, words) => {
  expect(findReleaseFault(factsOf('a1'), [entryNamed('a1', over)], NOW)).toContain(words)
})

it('findReleaseFault refuses a document of before its release was accepted, as readers of records would', () => {
  const entries = [entryNamed('a1', { accepted_from: '2026-06-01T11:00:00Z' })]
  const old = factsOf('a1', msOf('2026-06-01T10:59:59Z'))
  expect(findReleaseFault(old, entries, NOW)).toContain('expected a document made while')
  expect(findReleaseFault(factsOf('a1', msOf('2026-06-01T11:00:00Z')), entries, NOW)).toBeNull()
})

it('createAttestationCheck rejects a document once its leaf has expired, also one that it has passed before', async () => {
  let nowMs = Date.now()
  const check = createAttestationCheck({ isRootKnown: false, now: () => nowMs })
  await check(identity.attestation)
  nowMs += 4 * HOUR_MS
  await expect(check(identity.attestation)).rejects.toThrow(AttestationError)
})

it("createAttestationCheck rejects a document of another root than AWS's where that is the known one", async () => {
  const check = createAttestationCheck({ isRootKnown: true, now: Date.now })
  await expect(check(identity.attestation)).rejects.toMatchObject({ code: 'root_untrusted' })
})

it('createAttestationCheck rejects a document with a flipped bit, also after it passed the true one', async () => {
  const check = createAttestationCheck({ isRootKnown: false, now: Date.now })
  await check(identity.attestation)
  const bytes = decodeBase64(identity.attestation)
  bytes[bytes.length - 1] = (bytes.at(-1) ?? 0) ^ 1
  await expect(check(encodeBase64(bytes))).rejects.toMatchObject({ code: 'signature_invalid' })
})
