import { describe, expect, it } from 'vitest'
import { createNsmClient, type NsmTransport } from '#enclave/nsm/nsm.ts'
import type { NsmResponse } from '#enclave/protocol/nsm-wire.ts'
import { decodeRequest, encodeResponse } from '#src/local/nsm/security-module.ts'

const DOCUMENT: NsmResponse = { kind: 'Attestation', document: Uint8Array.of(1) }
const RANDOM: NsmResponse = { kind: 'GetRandom', random: new Uint8Array(256) }
const NO_INPUT = { publicKey: null, userData: null, nonce: null }

/**
 * A transport that answers each request with the next of `answers` after a turn of the event loop.
 */
function scripted(
  answers: NsmResponse[],
): NsmTransport & { running: number; most: number; kinds: string[]; closed: number } {
  const log = {
    running: 0,
    most: 0,
    kinds: [] as string[],
    closed: 0,
    exchange: async (request: Uint8Array) => {
      log.running += 1
      log.most = Math.max(log.most, log.running)
      log.kinds.push(decodeRequest(request).kind)
      await new Promise((resolve) => setImmediate(resolve))
      log.running -= 1
      const answer = answers.shift()
      if (answer === undefined) throw new Error('no more answers')
      return encodeResponse(answer)
    },
    close: () => {
      log.closed += 1
    },
  }
  return log
}

describe('createNsmClient', () => {
  it('the NSM client sends one request at a time, in the order of the calls', async () => {
    const transport = scripted([DOCUMENT, RANDOM, DOCUMENT])
    const nsm = createNsmClient('device', transport)
    await Promise.all([nsm.attest(NO_INPUT), nsm.random(1), nsm.attest(NO_INPUT)])
    expect(transport.kinds).toEqual(['Attestation', 'GetRandom', 'Attestation'])
    expect(transport.most).toBe(1)
  })

  it('the NSM client goes on after a call that failed', async () => {
    const nsm = createNsmClient(
      'device',
      scripted([{ kind: 'Error', code: 'InputTooLarge' }, DOCUMENT]),
    )
    const first = nsm.attest(NO_INPUT)
    const second = nsm.attest(NO_INPUT)
    await expect(first).rejects.toMatchObject({ name: 'NsmError', code: 'InputTooLarge' })
    await expect(second).resolves.toEqual(Uint8Array.of(1))
  })

  it('the NSM client refuses an answer to another question', async () => {
    const nsm = createNsmClient('device', scripted([DOCUMENT]))
    await expect(nsm.random(1)).rejects.toMatchObject({ code: 'InvalidResponse' })
  })

  it('the NSM client refuses GetRandom answers of no bytes, which would never end', async () => {
    const nsm = createNsmClient(
      'device',
      scripted([{ kind: 'GetRandom', random: new Uint8Array() }]),
    )
    await expect(nsm.random(1)).rejects.toMatchObject({ code: 'InvalidResponse' })
  })

  it.each([-1, 0.5, 65_537])('the NSM client refuses to give %d random bytes', async (length) => {
    await expect(createNsmClient('device', scripted([])).random(length)).rejects.toMatchObject({
      code: 'InvalidArgument',
    })
  })

  it('the NSM client refuses a request beyond 4096 bytes before the module sees it', async () => {
    const transport = scripted([])
    const nsm = createNsmClient('device', transport)
    await expect(nsm.attest({ ...NO_INPUT, userData: new Uint8Array(4096) })).rejects.toMatchObject(
      {
        code: 'InputTooLarge',
      },
    )
    expect(transport.kinds).toEqual([])
  })

  it('a closed NSM client finishes the call under way, refuses later ones, and closes transport once', async () => {
    const transport = scripted([DOCUMENT])
    const nsm = createNsmClient('device', transport)
    const running = nsm.attest(NO_INPUT)
    await new Promise((resolve) => setImmediate(resolve))
    const queued = nsm.attest(NO_INPUT)
    nsm.close()
    nsm.close()
    expect(transport.closed).toBe(0)
    await expect(running).resolves.toEqual(Uint8Array.of(1))
    await expect(queued).rejects.toMatchObject({ code: 'Closed' })
    await expect(nsm.random(1)).rejects.toMatchObject({ code: 'Closed' })
    expect(transport.closed).toBe(1)
  })
})
