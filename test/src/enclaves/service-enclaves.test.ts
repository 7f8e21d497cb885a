import { expect, it } from 'vitest'
import { NOTARIES_MAX } from '#attestation/notary-list.ts'
import type { CompletionAnswer } from '#src/enclaves/enclave-client.ts'
import type { EnclaveEndpoint } from '#src/enclaves/enclave-endpoint.ts'
import type { ServedNotary } from '#src/enclaves/enclave-pool.ts'
import type { EncryptedEndpoint } from '#src/enclaves/peer-enclaves.ts'
import { joinEnclaves } from '#src/enclaves/service-enclaves.ts'

const served = (notary: string, keys: readonly string[], document = 'document') =>
  ({
    notary,
    status: 'in_use',
    attestation: document,
    encryption_keys: keys.map((key) => ({ public_key: key })),
  }) as unknown as ServedNotary

const here = { name: 'here' } as unknown as EnclaveEndpoint
const there = { name: 'there' } as unknown as EncryptedEndpoint

const madeAt = (place: string) =>
  ({ kind: 'sealed', notice: { notary: place } }) as CompletionAnswer

const join = (own: readonly ServedNotary[], others: readonly ServedNotary[]) =>
  joinEnclaves(
    {
      notaries: () => own,
      findEncrypted: (asked) => (own.some(({ notary }) => notary === asked) ? here : null),
      complete: async () => madeAt('here'),
    },
    {
      notaries: () => others,
      endpoint: (asked) => (others.some(({ notary }) => notary === asked) ? there : null),
      complete: ({ notary: asked }) =>
        others.some(({ notary }) => notary === asked) ? Promise.resolve(madeAt('there')) : null,
    },
  )

it('the enclaves of several gateways are listed once each, those of this gateway as it knows them itself', () => {
  const service = join([served('0xb', ['kb'], 'mine')], [served('0xb', ['old']), served('0xa', [])])
  expect(service.notaries().map(({ notary, attestation }) => [notary, attestation])).toEqual([
    ['0xb', 'mine'],
    ['0xa', 'document'],
  ])
})

it('no number of enclaves of others keeps one of this gateway from being listed', () => {
  const others = Array.from({ length: 200 }, (_, at) => served(`0x${at}`, []))
  const listed = join([served('0xmine', [])], others).notaries()
  expect(listed[0]?.notary).toBe('0xmine')
  expect(listed).toHaveLength(NOTARIES_MAX)
})

it('the enclaves of several gateways publish the keys of the same one at every gateway', () => {
  const [one, two] = [served('0xa', ['ka']), served('0xb', ['kb'])]
  for (const service of [join([one], [two]), join([two], [one])])
    expect(service.wellKnownKeys()).toEqual([{ public_key: 'ka' }])
})

it('the enclaves of several gateways publish no key of an enclave that takes no encrypted calls', () => {
  const service = join([served('0xa', [])], [served('0xb', ['kb'])])
  expect(service.wellKnownKeys()).toEqual([{ public_key: 'kb' }])
  expect(service.findEncrypted(null)).toBe(there)
})

it('the enclaves of several gateways are given encrypted calls here first, then there, and nowhere else', () => {
  const service = join([served('0xb', ['kb'])], [served('0xb', ['kb']), served('0xc', ['kc'])])
  expect(service.findEncrypted('0xb')).toBe(here)
  expect(service.findEncrypted('0xc')).toBe(there)
  expect(service.findEncrypted('0xd')).toBe(null)
  expect(join([], []).findEncrypted(null)).toBe(null)
})

it('the enclaves of several gateways are given clear calls where their named enclave takes calls, else here', async () => {
  const draining = { ...served('0xd', []), status: 'draining' as const }
  const others = [served('0xb', []), served('0xc', []), served('0xd', [])]
  const service = join([served('0xb', []), draining], others)
  const places = await Promise.all(
    ['0xb', '0xc', '0xd', '0xe', null].map(async (notary) => {
      const wanted = {
        model: '',
        dialect: 'chat',
        notary,
        callFor: () => Object.create(null),
      } as const
      return await service.complete(wanted, new Uint8Array(), new AbortController().signal)
    }),
  )
  expect(places).toEqual(['here', 'there', 'there', 'here', 'here'].map(madeAt))
})
