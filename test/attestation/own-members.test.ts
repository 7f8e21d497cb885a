import { afterEach, expect, it } from 'vitest'
import { decodeBase64 } from '#attestation/bytes.ts'
import { redactBundle } from '#attestation/evidence/bundle.ts'
import { verifyBundle } from '#attestation/evidence/verify-bundle.ts'
import { verifyHeadAttestation } from '#attestation/evidence/verify-head-attestation.ts'
import { type AttestationPolicy, PolicyError, resolvePolicy } from '#attestation/nitro/policy.ts'
import {
  createAttestationVerifier,
  verifyAttestation,
} from '#attestation/nitro/verify-attestation.ts'
import { entryOf } from '#attestation/release/release-list.ts'
import { parseReleaseKey } from '#attestation/release/release-signatures.ts'
import { signRelease, verifyRelease } from '#attestation/release/verify-release.ts'
import { verifyRecord } from '#attestation/verify-record.ts'
import { buildOtherRelease, buildRelease } from '../support/build-release.ts'
import { PCR_VALUES } from '../support/nitro-builder/document-builder.ts'
import { buildRecord } from './build-record.ts'
import { BOOT_CONFIGURATION, buildEvidence, documentFor } from './evidence/build-evidence.ts'
import { ATTESTED_LOG, buildHeadAttestation } from './evidence/build-head-attestation.ts'

const { bundle, policy, chain } = buildEvidence()
const head = buildHeadAttestation()
const { roots = [], measurements = [], configurations = [] } = policy
const certificate = { issuer: new Uint8Array(1), serial: new Uint8Array(1) }

/** Debug mode shows as registers of zeros. */
const debugPcrs = new Map(
  [...PCR_VALUES].map(([at, pcr]) => [at, at < 3 ? new Uint8Array(48) : pcr]),
)
const debugDocument = documentFor(BOOT_CONFIGURATION, { pcrs: debugPcrs })

/** What another part of the same program may have done, by a careless merge of foreign JSON. */
function pollute(name: string, value: unknown): void {
  Object.defineProperty(Object.prototype, name, {
    value,
    configurable: true,
    writable: true,
    enumerable: false,
  })
  polluted.push(name)
}

const polluted: string[] = []

afterEach(() => {
  for (const name of polluted.splice(0)) Reflect.deleteProperty(Object.prototype, name)
})

/** Each option with the value that a party with something to hide would choose. */
const BUNDLE_OPTIONS: readonly (readonly [string, unknown])[] = [
  ['measurements', measurements],
  ['releases', [entryOf(buildRelease())]],
  ['configurations', configurations],
  ['outcomes', ['client_disconnected']],
  ['roots', roots],
  ['revoked', [certificate]],
  ['allowDebug', true],
  ['confirmationsMin', 1_000_000],
  ['chain', { ...chain, blockHash: null }],
  ['attestations', { verify: async () => ({}) }],
]

it.each(BUNDLE_OPTIONS)(
  'an option on Object.prototype changes nothing in the report on a bundle or a head attestation: %s',
  async (name, value) => {
    const reports = async () => [
      await verifyBundle(bundle, {}),
      await verifyBundle(bundle, { roots }, {}),
      await verifyHeadAttestation(head, ATTESTED_LOG, { roots }),
    ]
    const honest = await reports()
    pollute(name, value)
    expect(await reports()).toEqual(honest)
  },
)

it('allowDebug on Object.prototype does not let an enclave in debug mode pass', async () => {
  const { bundle: debug } = buildEvidence({ stored: { attestation: debugDocument } })
  pollute('allowDebug', true)
  expect((await verifyBundle(debug, { roots, configurations })).verdict).toBe('not_accepted')
  const demanded: AttestationPolicy = { measurements: 'any', mode: 'historical', roots }
  await expect(
    verifyAttestation(decodeBase64(debugDocument), demanded, new Date(0)),
  ).rejects.toMatchObject({ code: 'debug_mode' })
})

const list = { ...certificate, issuerKey: new Uint8Array(97), serials: [] }
it.each<[keyof AttestationPolicy, unknown]>([
  ['releases', [entryOf(buildRelease())]],
  ['mode', 'historical'],
  ['nonce', new Uint8Array(16)],
  ['maxAgeMs', Number.MAX_SAFE_INTEGER],
  ['futureSkewMs', Number.MAX_SAFE_INTEGER],
  ['allowDebug', true],
  ['roots', roots],
  ['revoked', [certificate]],
  ['revocationLists', [{ ...list, thisUpdateMs: 0, nextUpdateMs: 0 }]],
])('an option on Object.prototype changes nothing in an attestation policy: %s', (name, value) => {
  const honest = resolvePolicy({ measurements: [] })
  pollute(name, value)
  expect(resolvePolicy({ measurements: [] })).toEqual(honest)
})

it('measurements on Object.prototype do not stand in for measurements that were left out', () => {
  pollute('measurements', 'any')
  expect(() => resolvePolicy({} as AttestationPolicy)).toThrow(PolicyError)
})

it.each(['issuer', 'serial'])(
  'a member on Object.prototype does not complete a revoked certificate: %s',
  (name) => {
    const { [name as 'issuer']: value, ...rest } = certificate
    pollute(name, value)
    const revoked = [rest] as unknown as AttestationPolicy['revoked']
    expect(() => resolvePolicy({ measurements: 'any', revoked: revoked ?? [] })).toThrow(
      PolicyError,
    )
  },
)

it.each<[string, unknown]>([
  ['request', { model: 'another' }],
  ['response', 'ab'.repeat(32)],
  ['chunks', []],
  ['withheld', { request: 'ab'.repeat(32), response: 'ab'.repeat(32) }],
  ['decodeAttestation', () => ({ publicKey: null })],
  [
    'recover',
    () => {
      throw new Error('recovers nothing')
    },
  ],
])('an option on Object.prototype changes nothing in the report on a record: %s', (name, value) => {
  const { stored } = buildRecord()
  const changed = { ...stored, response: {} }
  const honest = [verifyRecord(stored), verifyRecord(changed, { withheld: {} })]
  pollute(name, value)
  expect([verifyRecord(stored), verifyRecord(changed, { withheld: {} })]).toEqual(honest)
})

it('members of Object.prototype do not leave parts out of a bundle', () => {
  pollute('request', true)
  pollute('response', true)
  expect(redactBundle(bundle, {})).toEqual(bundle)
})

it('members of Object.prototype neither raise how many must have signed a release nor name signers', () => {
  const secret = new Uint8Array(32).fill(7)
  const signed = signRelease(buildRelease(), secret)
  const [{ public_key: key } = { public_key: '' }] = signed.signatures
  const keys = [parseReleaseKey(key)]
  pollute('signersMin', 9)
  pollute('keys', keys)
  expect(verifyRelease(signed, { keys }).signers).toEqual([key])
  expect(() => verifyRelease(signed, {} as { keys: typeof keys })).toThrow()
})

it('a register on Object.prototype is not added to a release', async () => {
  pollute('PCR8', 'ab'.repeat(48))
  const releases = [entryOf(buildOtherRelease()), entryOf(buildRelease())]
  expect((await verifyBundle(bundle, { roots, releases, configurations })).verdict).toBe('verified')
})

it('chainsMax on Object.prototype does not bound what a verifier remembers', async () => {
  pollute('chainsMax', -1)
  const attestations = createAttestationVerifier()
  expect((await verifyBundle(bundle, policy, { attestations })).verdict).toBe('verified')
})

class Demands {
  get measurements() {
    return measurements
  }
}

it.each([
  ['an instance of a class', new Demands()],
  ['an object made over another one', Object.create({ measurements })],
  [
    'an object over one that inherits nothing',
    Object.create(Object.assign(Object.create(null), policy)),
  ],
])(
  'a policy that inherits its members is refused, since its demands would not be seen: %s',
  async (_, demanded) => {
    await expect(verifyBundle(bundle, demanded)).rejects.toThrow(PolicyError)
    expect(() => resolvePolicy(demanded)).toThrow(PolicyError)
  },
)

it('a policy that inherits nothing at all is taken', async () => {
  const demanded = Object.assign(Object.create(null), policy)
  expect((await verifyBundle(bundle, demanded)).verdict).toBe('verified')
})
