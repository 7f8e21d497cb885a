import { describe, expect, it } from 'vitest'
import type { Identity } from '../../../enclave/protocol/messages.ts'
import {
  type AttestingEnclave,
  createAttestations,
  FRESH_BURST,
  FRESH_PER_SECOND,
} from '../../../src/enclaves/attestations.ts'
import { EnclaveError } from '../../../src/enclaves/enclave-errors.ts'
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
  log: { size: 0, acknowledged: 0 },
})

/** An enclave that is, at each question, the next of `notaries`; the last one stays. */
function start(notaries: readonly string[]) {
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
    now: () => clock.nowMs,
  })
  return { attestations, clock }
}

describe('createAttestations', () => {
  it('gives the current document without a nonce', async () => {
    const { attestations } = start(['a'])
    expect(await attestations.attest(null)).toEqual({
      attestation: 'current of a',
      public_key: 'key of a',
      notary: 'a',
      boot_configuration: identityOf('a').boot_configuration,
    })
  })

  it('gives a fresh document over the nonce', async () => {
    const { attestations } = start(['a'])
    expect(await attestations.attest('n')).toMatchObject({ attestation: 'n of a', notary: 'a' })
  })

  it('never pairs a document with the key of another enclave', async () => {
    for (const notaries of [
      ['a', 'a', 'b', 'b', 'b'],
      ['a', 'b', 'b', 'b'],
    ]) {
      const { attestations } = start(notaries)
      expect(await attestations.attest('n')).toMatchObject({ attestation: 'n of b', notary: 'b' })
    }
  })

  it('gives the document of the notary that is asked for, or says that there is none', async () => {
    expect(await start(['a']).attestations.attest('n', 'a')).toMatchObject({ notary: 'a' })
    const gone = { status: 404, code: 'not_found' }
    await expect(start(['a']).attestations.attest(null, 'b')).rejects.toMatchObject(gone)
    // It was replaced while it was asked.
    await expect(start(['b', 'b', 'b', 'a']).attestations.attest('n', 'a')).rejects.toMatchObject(
      gone,
    )
  })

  it('gives up on an enclave that is replaced again and again', async () => {
    const { attestations } = start(['a', 'b', 'c', 'd', 'e', 'f', 'g', 'h'])
    await expect(attestations.attest('n')).rejects.toMatchObject({ code: 'enclave_unavailable' })
  })

  it('bounds how many fresh ones are made, and only those', async () => {
    const { attestations, clock } = start(['a'])
    for (let count = 0; count < FRESH_BURST; count++) await attestations.attest('n')
    await expect(attestations.attest('n')).rejects.toMatchObject({
      status: 503,
      code: 'overloaded',
    })
    await expect(attestations.attest(null)).resolves.toBeDefined()
    clock.nowMs += 1000
    for (let count = 0; count < FRESH_PER_SECOND; count++) await attestations.attest('n')
    await expect(attestations.attest('n')).rejects.toMatchObject({ code: 'overloaded' })
  })

  it('says that the enclave is out of reach', async () => {
    const down = async () => {
      throw new EnclaveError('unavailable', 'x')
    }
    const enclave = { identity: down, attestation: down, forgetIdentity: () => {} }
    const attestations = createAttestations({
      enclaves: { find: async () => enclave },
      listNotaries: () => [],
      now: () => 0,
    })
    await expect(attestations.attest(null)).rejects.toMatchObject({
      status: 503,
      code: 'enclave_unavailable',
    })
  })
})
