import { describe, expect, it } from 'vitest'
import { createNsmClient, type NsmTransport } from '../../../enclave/nsm/client.ts'
import { decodeRequest, encodeResponse, type NsmResponse } from '../../../enclave/nsm/messages.ts'

const NO_INPUT = { publicKey: null, userData: null, nonce: null }

/** A transport that answers each request with the next of `answers` after a turn of the event loop. */
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
  it('sends one request at a time, in the order of the calls', async () => {
    const transport = scripted([
      { kind: 'LockPCR' },
      { kind: 'GetRandom', random: new Uint8Array(256) },
      { kind: 'LockPCRs' },
    ])
    const nsm = createNsmClient('device', transport)
    await Promise.all([nsm.lockPcr(16), nsm.random(1), nsm.lockPcrs(20)])
    expect(transport.kinds).toEqual(['LockPCR', 'GetRandom', 'LockPCRs'])
    expect(transport.most).toBe(1)
  })

  it('goes on after a call that failed', async () => {
    const nsm = createNsmClient(
      'device',
      scripted([{ kind: 'Error', code: 'ReadOnlyIndex' }, { kind: 'LockPCR' }]),
    )
    const first = nsm.lockPcr(3)
    const second = nsm.lockPcr(16)
    await expect(first).rejects.toMatchObject({ name: 'NsmError', code: 'ReadOnlyIndex' })
    await expect(second).resolves.toBeUndefined()
  })

  it('refuses an answer to another question', async () => {
    const nsm = createNsmClient('device', scripted([{ kind: 'LockPCR' }]))
    await expect(nsm.describe()).rejects.toMatchObject({ code: 'InvalidResponse' })
  })

  it('collects as many random bytes as asked for, over several calls', async () => {
    const part = (fill: number): NsmResponse => ({
      kind: 'GetRandom',
      random: new Uint8Array(256).fill(fill),
    })
    const nsm = createNsmClient('device', scripted([part(1), part(2), part(3)]))
    const random = await nsm.random(600)
    expect(random.length).toBe(600)
    expect([random[0], random[256], random[599]]).toEqual([1, 2, 3])
  })

  it('refuses GetRandom answers of no bytes, which would never end', async () => {
    const nsm = createNsmClient('device', scripted([{ kind: 'GetRandom', random: new Uint8Array() }]))
    await expect(nsm.random(1)).rejects.toMatchObject({ code: 'InvalidResponse' })
  })

  it.each([-1, 0.5, 65_537])('refuses to give %d random bytes', async (length) => {
    await expect(createNsmClient('device', scripted([])).random(length)).rejects.toMatchObject({
      code: 'InvalidArgument',
    })
  })

  it('refuses a request beyond 4096 bytes before the module sees it', async () => {
    const transport = scripted([])
    const nsm = createNsmClient('device', transport)
    await expect(nsm.attest({ ...NO_INPUT, userData: new Uint8Array(4096) })).rejects.toMatchObject({
      code: 'InputTooLarge',
    })
    expect(transport.kinds).toEqual([])
  })

  it('finishes the call under way when closed, refuses those after, and closes the transport once', async () => {
    const transport = scripted([{ kind: 'LockPCR' }])
    const nsm = createNsmClient('device', transport)
    const running = nsm.lockPcr(16)
    await new Promise((resolve) => setImmediate(resolve))
    const queued = nsm.lockPcr(17)
    nsm.close()
    nsm.close()
    expect(transport.closed).toBe(0)
    await expect(running).resolves.toBeUndefined()
    await expect(queued).rejects.toMatchObject({ code: 'Closed' })
    await expect(nsm.describe()).rejects.toMatchObject({ code: 'Closed' })
    expect(transport.closed).toBe(1)
  })
})
