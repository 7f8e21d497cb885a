import { expect, it } from 'vitest'
import type { Identity } from '#enclave/protocol/enclave-api.ts'
import { type AttestingEnclave, createAttestations } from '#src/enclaves/attestations.ts'
import { ADDRESS_RATE, KNOWN_RATE, OPEN_RATE } from '#src/enclaves/fresh-shares.ts'
import { SCRIPTED_DOMAIN } from '../../support/scripted-enclave.ts'

const identityOf = (notary: string): Identity => ({
  boot_configuration: {
    protocol_version: 1,
    providers: [],
    ca_sha256: '00',
    chain_id: SCRIPTED_DOMAIN.chainId,
    contract: SCRIPTED_DOMAIN.contract,
  },
  public_key: `key of ${notary}`,
  notary,
  attestation: `current of ${notary}`,
  encryption_keys: [],
  log: { size: 0, acknowledged: 0 },
})

type Peers = NonNullable<Parameters<typeof createAttestations>[0]['peers']> | null

/** An enclave that is, at each question, the next of `notaries`; the last one stays. */
function start(notaries: readonly string[], peers: Peers = null) {
  let question = 0
  const next = () => notaries[Math.min(question++, notaries.length - 1)] ?? ''
  const clock = { nowMs: 0 }
  const enclave: AttestingEnclave = {
    identity: async () => identityOf(next()),
    forgetIdentity: () => {},
    attestation: async (nonce) => `${nonce} of ${next()}`,
  }
  const attestations = createAttestations({
    enclaves: {
      find: async (notary) => (notary === null || notaries.includes(notary) ? enclave : null),
    },
    listNotaries: () => [],
    peers,
    now: () => clock.nowMs,
  })
  return { attestations, clock }
}

const CALLER = { group: '192.0.2.1', isKnown: false }

it('createAttestations never pairs a document with the key of another enclave', async () => {
  for (const notaries of [
    ['a', 'a', 'b', 'b', 'b'],
    ['a', 'b', 'b', 'b'],
  ]) {
    const { attestations } = start(notaries)
    expect(await attestations.attest({ nonce: 'n', notary: null }, CALLER)).toMatchObject({
      attestation: 'n of b',
      notary: 'b',
    })
  }
})

it('createAttestations gives the document of the notary that is asked for, or says that there is none', async () => {
  expect(await start(['a']).attestations.attest({ nonce: 'n', notary: 'a' }, CALLER)).toMatchObject(
    { notary: 'a' },
  )
  const gone = { status: 404, code: 'not_found' }
  await expect(
    start(['a']).attestations.attest({ nonce: null, notary: 'b' }, CALLER),
  ).rejects.toMatchObject(gone)
  // It was replaced while it was asked.
  await expect(
    start(['b', 'b', 'b', 'a']).attestations.attest({ nonce: 'n', notary: 'a' }, CALLER),
  ).rejects.toMatchObject(gone)
})

it('createAttestations gives up on an enclave that is replaced again and again', async () => {
  const { attestations } = start(['a', 'b', 'c', 'd', 'e', 'f', 'g', 'h'])
  await expect(attestations.attest({ nonce: 'n', notary: null }, CALLER)).rejects.toMatchObject({
    code: 'enclave_unavailable',
  })
})

const ask = ({ attestations }: ReturnType<typeof start>, group: string, isKnown = false) =>
  attestations.attest({ nonce: 'n', notary: null }, { group, isKnown })
const refused = { status: 503, code: 'overloaded' }

it('a caller has a share of the fresh documents, and current ones without bound', async () => {
  const service = start(['a'])
  for (let count = 0; count < ADDRESS_RATE.burst; count++) await ask(service, 'one')
  await expect(ask(service, 'one')).rejects.toMatchObject(refused)
  await expect(ask(service, 'other')).resolves.toBeDefined()
  const current = { nonce: null, notary: null }
  await expect(service.attestations.attest(current, CALLER)).resolves.toBeDefined()
  service.clock.nowMs += 1000
  for (let count = 0; count < ADDRESS_RATE.perSecond; count++) await ask(service, 'one')
  await expect(ask(service, 'one')).rejects.toMatchObject(refused)
})

it('callers without a key leave documents for those who have one', async () => {
  const service = start(['a'])
  for (let count = 0; count < OPEN_RATE.burst; count++) await ask(service, `address ${count}`)
  await expect(ask(service, 'one address more')).rejects.toMatchObject(refused)
  for (let count = 0; count < KNOWN_RATE.burst; count++)
    await ask(service, `account ${count}`, true)
  await expect(ask(service, 'one account more', true)).rejects.toMatchObject(refused)
})

it('callers without a key of other gateways leave documents for those who have one', async () => {
  let answer: Parameters<NonNullable<Peers>['serveAttestations']>[0] | null = null
  const peers: Peers = {
    holds: () => false,
    attest: async () => null,
    serveAttestations: (given) => {
      answer = given
    },
  }
  start(['a'], peers)
  const askThere = (isKnown: boolean) => answer?.('n', 'a', isKnown)
  for (let count = 0; count < OPEN_RATE.burst; count++) await askThere(false)
  await expect(askThere(false)).rejects.toMatchObject(refused)
  for (let count = 0; count < KNOWN_RATE.burst; count++) await askThere(true)
  await expect(askThere(true)).rejects.toMatchObject(refused)
})

it('a caller of this gateway is named to the gateway of its enclave as one with a key or without', async () => {
  const asked: boolean[] = []
  const { attestations } = start(['a'], {
    holds: () => true,
    attest: async (_nonce, notary, isKnown) => {
      asked.push(isKnown)
      return { ...identityOf(notary), notary }
    },
    serveAttestations: () => undefined,
  })
  const question = { nonce: 'n', notary: 'b' }
  await attestations.attest(question, CALLER)
  await attestations.attest(question, { group: 'account', isKnown: true })
  expect(asked).toEqual([false, true])
})

it('a document of a notary that there is not costs nothing', async () => {
  const service = start(['a'])
  for (let count = 0; count < 2 * OPEN_RATE.burst; count++)
    await expect(
      service.attestations.attest({ nonce: 'n', notary: 'nobody' }, CALLER),
    ).rejects.toMatchObject({ code: 'not_found' })
  await expect(ask(service, CALLER.group)).resolves.toBeDefined()
})
