import { randomUUID } from 'node:crypto'
import { setTimeout as sleep } from 'node:timers/promises'
import { connect, type NatsConnection } from '@nats-io/transport-node'
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest'
import { type Bus, startBus } from '#src/bus/bus.ts'
import { createMessageSealer, MESSAGE_AGE_MAX_MS } from '#src/bus/sealed-messages.ts'
import { openPeerEnclaves } from '#src/enclaves/peer-enclaves.ts'
import { createLogger } from '#src/observability/logger.ts'
import { BUS_KEY, NATS, type NatsServer, startNatsServer } from '../../support/nats-server.ts'
import { until } from '../../support/until.ts'

let nats: NatsServer
let stranger: NatsConnection
const buses: Bus[] = []

beforeAll(async () => {
  if (!NATS.isMet) return
  nats = await startNatsServer()
  stranger = await connect({ servers: [nats.url.slice('nats://'.length)] })
})
afterAll(async () => {
  await stranger?.close()
  await nats?.stop()
})
afterEach(async () => {
  await Promise.all(buses.splice(0).map((bus) => bus.stop()))
})

const log = createLogger({ level: 'silent', destination: { write: () => undefined } })

function open(prefix: string, key = BUS_KEY): Bus {
  const bus = startBus(
    { servers: [nats.url], credentialsFile: null, caFile: null, subjectPrefix: prefix },
    { key, makeId: randomUUID, now: Date.now, log },
  )
  buses.push(bus)
  return bus
}

async function openPair() {
  const prefix = `test-${randomUUID()}`
  const [near, far] = [open(prefix), open(prefix)]
  await until('they meet', () => near.peers().includes(far.id) && far.peers().includes(near.id))
  return { prefix, near, far }
}

const words = (value: unknown) => Buffer.from(JSON.stringify(value))
const refusals = (bus: Bus, why: 'unsealed' | 'forged' | 'stale' | 'replayed') =>
  bus.status().refused.get(why) ?? 0

/** A notary as a gateway publishes its own. */
const notaryOf = (at: number) => ({
  notary: `0x${at.toString(16).padStart(40, '0')}`,
  public_key: `0x04${'ab'.repeat(64)}`,
  status: 'in_use',
  attestation: 'AAAA',
  boot_configuration: {},
  encryption_keys: [],
})

describe.runIf(NATS.isMet)(NATS.title('a stranger who may write on the bus'), () => {
  it('a stranger is no gateway of the service, whatever it calls itself', async () => {
    const { prefix, near, far } = await openPair()
    const here = { version: 2, from: 'stranger', epoch: 1, body: null }
    stranger.publish(`${prefix}.all.here`, words(here))
    const subject = `${prefix}.all.here`
    const own = createMessageSealer({ key: new Uint8Array(32), id: 'stranger', now: Date.now })
    stranger.publish(subject, own.seal({ subject }, words(here)))
    await until('both are refused', () => refusals(far, 'unsealed') + refusals(far, 'forged') === 2)
    expect(far.peers()).toEqual([near.id])
  })

  it('a message is taken once, on its own subject, and for its own answer', async () => {
    const { prefix, near, far } = await openPair()
    const received: unknown[] = []
    far.listen('news', (_, message) => void received.push(message))
    const caught = stranger.subscribe(`${prefix}.all.news`, { max: 1 })
    await stranger.flush()
    near.publish('news', 'once')
    for await (const { data, subject } of caught) {
      stranger.publish(subject, data)
      stranger.publish(`${prefix}.open.${far.id}`, data, { reply: `${prefix}.channel.x.y` })
    }
    await until('both are refused', () => refusals(far, 'replayed') + refusals(far, 'forged') === 2)
    expect(received).toEqual(['once'])
  })

  it('a message of another time is not taken, though its number never came', async () => {
    const { prefix, far } = await openPair()
    const subject = `${prefix}.all.here`
    for (const skewMs of [-MESSAGE_AGE_MAX_MS - 1_000, MESSAGE_AGE_MAX_MS + 1_000]) {
      const now = () => Date.now() + skewMs
      const kept = createMessageSealer({ key: BUS_KEY, id: `of another time ${skewMs}`, now })
      const here = { version: 2, from: 'x', epoch: 1, body: null }
      stranger.publish(subject, kept.seal({ subject }, words(here)))
    }
    await until('both are refused', () => refusals(far, 'stale') === 2)
  })

  it('an answer of a stranger is none, and its question has none', async () => {
    const { prefix, near, far } = await openPair()
    const asked: unknown[] = []
    far.answer('thing', 'x', async (question) => {
      asked.push(question)
      return 'the gateway'
    })
    const sub = stranger.subscribe(`${prefix}.ask.thing.>`, {
      callback: (_, message) => void message.respond(words('a stranger')),
    })
    await stranger.flush()
    await until('it is asked', async () => {
      const answer = await near.ask('thing', 'x', { question: 'who?', timeoutMs: 500 })
      expect(answer).not.toBe('a stranger')
      return asked.length > 0
    })
    sub.unsubscribe()
    const before = asked.length
    const reply = stranger.request(`${prefix}.ask.thing.eA`, words('mine'), { timeout: 300 })
    await reply.catch(() => undefined)
    expect(asked).toHaveLength(before)
  })

  it('false notaries and keys of a stranger are not listed, and an encrypted call of it is not made', async () => {
    const { prefix, far } = await openPair()
    let made = 0
    const peers = openPeerEnclaves({
      bus: far,
      enclaves: {
        notaries: () => [],
        findEncrypted: () => {
          made++
          return null
        },
      },
      check: async () => [],
      credentials: () => new Map([['demo', 'the credential of the operator']]),
      patienceMs: 0,
      proofFor: () => Promise.reject(new Error('nothing is sealed')),
      log,
    })
    const sender = { version: 2, from: 'stranger', epoch: 1 }
    const notaries = Array.from({ length: 100 }, (_, at) => notaryOf(at))
    stranger.publish(`${prefix}.all.here`, words({ ...sender, body: null }))
    stranger.publish(`${prefix}.all.notaries`, words({ ...sender, body: notaries }))
    const header = {
      notary: notaryOf(1).notary,
      context: JSON.stringify({ account_id: 'of somebody else' }),
      encapsulated_key: 'ab'.repeat(32),
      sealed_credential: null,
    }
    stranger.publish(
      `${prefix}.open.${far.id}`,
      words({ ...sender, service: 'encrypted', header }),
      { reply: `${prefix}.channel.stranger.call` },
    )
    await until('all are refused', () => refusals(far, 'unsealed') === 3)
    await sleep(0)
    expect(peers.notaries()).toEqual([])
    expect(made).toBe(0)
    peers.stop()
  })
})
