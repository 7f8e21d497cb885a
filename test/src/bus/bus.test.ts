import { randomBytes, randomUUID } from 'node:crypto'
import { writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { connect, type NatsConnection } from '@nats-io/transport-node'
import { afterAll, afterEach, beforeAll, describe, expect, it, vi } from 'vitest'
import { type Bus, openBus, startBus } from '#src/bus/bus.ts'
import type { Channel } from '#src/bus/channel.ts'
import { PEERS_MAX } from '#src/bus/peers.ts'
import { createMessageSealer, MESSAGE_AGE_MAX_MS } from '#src/bus/sealed-messages.ts'
import { openPeerEnclaves } from '#src/enclaves/peer-enclaves.ts'
import { createLogger } from '#src/observability/logger.ts'
import { openServiceKey } from '#src/storage/service-keys.ts'
import { AT_ONCE_MS } from '../../support/at-once.ts'
import { startDatabases } from '../../support/databases.ts'
import { BUS_KEY, NATS, type NatsServer, startNatsServer } from '../../support/nats-server.ts'
import { until } from '../../support/until.ts'

let nats: NatsServer
let stranger: NatsConnection
const buses: Bus[] = []
const lines: string[] = []
const servers: NatsServer[] = []

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
  for (const server of servers.splice(0)) await server.stop()
  lines.length = 0
})

/** A server of the test's own, which ends with it. */
async function startServer(words: readonly string[] = []): Promise<NatsServer> {
  const server = await startNatsServer(words)
  servers.push(server)
  return server
}

const configOf = (subjectPrefix: string, url: string) => ({
  servers: [url],
  credentialsFile: null,
  caFile: null,
  subjectPrefix,
})

const logOfLines = () =>
  createLogger({ level: 'info', destination: { write: (line) => void lines.push(line) } })

function open(prefix: string, url = nats.url): Bus {
  const parts = { key: BUS_KEY, makeId: randomUUID, now: Date.now, log: logOfLines() }
  const bus = startBus(configOf(prefix, url), parts)
  buses.push(bus)
  return bus
}

async function openPair(url?: string): Promise<{ near: Bus; far: Bus; prefix: string }> {
  const prefix = `test-${randomUUID()}`
  const near = open(prefix, url)
  const far = open(prefix, url)
  await meet(near, far)
  return { near, far, prefix }
}

const meet = (near: Bus, far: Bus) =>
  until('they meet', () => near.peers().includes(far.id) && far.peers().includes(near.id))

/** Answers what it is sent. */
function serveEcho(bus: Bus): void {
  bus.serve('echo', async (channel) => {
    for await (const message of channel.messages) await channel.send(message)
    await channel.end()
  })
}

async function echo(near: Bus, far: Bus, text: string): Promise<string> {
  const channel = near.open(far.id, 'echo', null)
  await channel.send(Buffer.from(text))
  await channel.end()
  const parts: Uint8Array[] = []
  for await (const message of channel.messages) parts.push(message)
  return Buffer.concat(parts).toString()
}

/** A channel whose other end waits for ever. */
async function openSilent(near: Bus, far: Bus): Promise<Channel> {
  const received = Promise.withResolvers<void>()
  far.serve('silent', async (channel) => {
    received.resolve()
    for await (const _ of channel.messages);
  })
  const channel = near.open(far.id, 'silent', null)
  await received.promise
  return channel
}

const stop = (pid: number) => process.kill(pid, 'SIGSTOP')

describe.runIf(NATS.isMet)(NATS.title('a bus'), () => {
  it('a bus carries channels, what is told to all, and questions', async () => {
    const { near, far } = await openPair()
    serveEcho(far)
    expect(await echo(near, far, 'x'.repeat(1_500_000))).toHaveLength(1_500_000)
    const received: unknown[] = []
    far.listen('news', (from, message) => received.push([from, message]))
    near.publish('news', { of: 'today' })
    await until('it hears', () => received.length === 1)
    expect(received).toEqual([[near.id, { of: 'today' }]])
    const end = far.answer('thing', 'a b.*', async (question) => ({ question }))
    const asked = { question: 'where', timeoutMs: 5_000 }
    await until('it is asked', async () => (await near.ask('thing', 'a b.*', asked)) !== null)
    expect(await near.ask('thing', 'a b.*', asked)).toEqual({ question: 'where' })
    end()
    await until('nobody answers', async () => (await near.ask('thing', 'a b.*', asked)) === null)
    await until('no channel is left', () => near.status().channels + far.status().channels === 0)
  })

  it('gateways meet although the clock of their machine was set after one of them started', async () => {
    const source = await startDatabases()
    try {
      const database = await source.open()
      const config = configOf(`test-${randomUUID()}`, nats.url)
      const opening = { database, log: logOfLines(), onStarted: () => {} }
      vi.useFakeTimers({ toFake: ['Date'], now: Date.now() })
      const near = await openBus(config, opening)
      vi.setSystemTime(Date.now() + 120_000)
      const key = await openServiceKey(database, { name: 'bus', random: randomBytes })
      const far = startBus(config, { ...opening, key, makeId: randomUUID, now: Date.now })
      if (near === null) throw new Error('expected a bus')
      buses.push(near, far)
      await meet(near, far)
      expect(near.status().refused).toEqual(new Map())
    } finally {
      vi.useRealTimers()
      await source.stop()
    }
  })

  it('a call ends at a service that is not there, or that fails', async () => {
    const { near, far } = await openPair()
    far.serve('failing', async () => {
      throw new Error('no')
    })
    for (const service of ['nothing', 'failing']) {
      const channel = near.open(far.id, service, null)
      await until('it ends', () => channel.signal.aborted)
      expect(channel.signal.reason).toMatchObject({ code: 'aborted' })
    }
    expect(near.open(randomUUID(), 'echo', null).signal.reason).toMatchObject({ code: 'lost' })
    expect(near.status().channels).toBe(0)
  })

  it('a bus ends calls at once when the server is killed, and works again when it is back', async () => {
    const server = await startServer()
    const { near, far } = await openPair(server.url)
    serveEcho(far)
    const channel = await openSilent(near, far)
    const killedAtMs = performance.now()
    await server.kill()
    await until('the call ended', () => channel.signal.aborted)
    expect(performance.now() - killedAtMs).toBeLessThan(AT_ONCE_MS)
    expect(near.status()).toMatchObject({ isUp: false, peers: 0, channels: 0 })
    expect(await near.ask('thing', 'x', { question: 1, timeoutMs: 60_000 })).toBeNull()
    await server.restart()
    await meet(near, far)
    expect(await echo(near, far, 'again')).toBe('again')
    expect(lines.filter((line) => line.includes('bus lost'))).toHaveLength(2)
  })

  it('a bus sees that a frame was lost, though nothing comes after it', async () => {
    const { near, far, prefix } = await openPair()
    const channel = await openSilent(near, far)
    // The other side receives the count of a frame that never comes.
    const reported = { version: 1, from: near.id, epoch: 1 }
    const names = await channelNames(prefix, far.id)
    const subject = `${prefix}.tally.${far.id}`
    const sealer = sealerOf(near.id)
    // Its numbers come after all that the gateway itself has given.
    for (let number = 0; number < 200; number++) sealer.seal({ subject }, new Uint8Array())
    for (let time = 0; time < 2; time++)
      stranger.publish(subject, sealer.seal({ subject }, wordsOf({ ...reported, body: names(99) })))
    await until('the call ended', () => channel.signal.aborted)
    expect(channel.signal.reason).toMatchObject({ code: 'aborted' })
  })

  it('a bus logs in as the address says, and tells of a wrong password without it', async () => {
    const server = await startServer(['--user', 'gate', '--pass', 'p@ss:w/rd'])
    const login = (password: string) =>
      server.url.replace('//', `//gate:${encodeURIComponent(password)}@`)
    const right = open('locked', login('p@ss:w/rd'))
    await until('it is up', () => right.status().isUp)
    const wrong = open('locked', login('secret-guess'))
    await until('it is told', () => lines.some((line) => line.includes('bus cannot be used')))
    expect(wrong.status().isUp).toBe(false)
    expect(lines.join()).toMatch(/Authorization Violation/)
    expect(lines.join()).not.toMatch(/secret-guess|p@ss/)
  })

  it('a bus reports every channel through a server that takes only small messages', async () => {
    const config = join(tmpdir(), `nats-${randomUUID()}.conf`)
    await writeFile(config, 'max_payload: 8192')
    const server = await startServer(['-c', config])
    const { near, far, prefix } = await openPair(server.url)
    const reader = await connect({ servers: [server.url.slice('nats://'.length)] })
    const reported = new Set<string>()
    reader.subscribe(`${prefix}.tally.${far.id}`, {
      callback: (_, { data }) => {
        const text = Buffer.from(data).toString('latin1')
        for (const [, name = ''] of text.matchAll(/\["([^"]+)",\d+\]/g)) reported.add(name)
      },
    })
    await reader.flush()
    await openSilent(near, far)
    for (let count = 1; count < 300; count++) near.open(far.id, 'silent', null)
    await until('all are reported', () => reported.size === 300)
    expect(lines.filter((line) => line.includes('not sent'))).toEqual([])
    await reader.close()
  })

  it('a bus outlives whatever is said on its subjects, and remembers a bounded number of gateways', async () => {
    const { near, far, prefix } = await openPair()
    serveEcho(far)
    far.listen('news', () => {
      throw new Error('of no use')
    })
    const from = { version: 1, from: 'x', epoch: 1 }
    const words = [
      '',
      'garbage',
      '{"__proto__": {"polluted": 1}, "version": 1}',
      '['.repeat(100_000),
      JSON.stringify({ version: 2, from: 'other-version', epoch: 1, body: null }),
      JSON.stringify({ ...from, from: 'a.b >\r\nPUB', body: null }),
      JSON.stringify({ ...from, from: near.id, epoch: 0, body: null }),
      JSON.stringify({ ...from, body: [['unknown', 1]] }),
      JSON.stringify({ ...from, body: 'x'.repeat(300_000) }),
      JSON.stringify({ ...from, service: 'echo', header: null }),
    ]
    const subjects = [
      'all.here',
      'all.news',
      `open.${far.id}`,
      `tally.${far.id}`,
      `channel.${far.id}.x`,
    ]
    const sealer = sealerOf('x')
    const reply = `${prefix}.channel.x.y`
    for (const name of subjects) {
      const subject = `${prefix}.${name}`
      for (const word of words) {
        stranger.publish(subject, word, { reply })
        stranger.publish(subject, sealer.seal({ subject, reply }, Buffer.from(word)), { reply })
      }
    }
    const subject = `${prefix}.all.here`
    const ids = Array.from({ length: PEERS_MAX + 50 }, (_, at) => `member-${at}`)
    const members = ids.map((id) => ({ from: id, sealer: sealerOf(id) }))
    await until('it knows as many as it remembers', async () => {
      for (const { sealer, from: id } of members)
        stranger.publish(
          subject,
          sealer.seal({ subject }, wordsOf({ ...from, from: id, body: null })),
        )
      await stranger.flush()
      return far.peers().length === PEERS_MAX
    })
    expect(far.peers()).not.toContain('other-version')
    // A gateway that receives nothing for seconds, on a busy machine, ends the calls of that moment.
    await until('it is still there', async () =>
      echo(near, far, 'there').then(
        (text) => text === 'there',
        () => false,
      ),
    )
    expect(({} as { polluted?: number }).polluted).toBeUndefined()
    expect(lines.filter((line) => line.includes('not understood')).length).toBeLessThanOrEqual(2)
  })

  it('a bus stops although the server hangs', async () => {
    const server = await startServer()
    const bus = open('hung', server.url)
    await until('it is up', () => bus.status().isUp)
    stop(server.pid())
    const startedAtMs = performance.now()
    await bus.stop()
    expect(performance.now() - startedAtMs).toBeLessThan(AT_ONCE_MS)
  })
})

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
    const here = { version: 1, from: 'stranger', epoch: 1, body: null }
    stranger.publish(`${prefix}.all.here`, wordsOf(here))
    const subject = `${prefix}.all.here`
    const own = createMessageSealer({ key: new Uint8Array(32), id: 'stranger', now: Date.now })
    stranger.publish(subject, own.seal({ subject }, wordsOf(here)))
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
      const here = { version: 1, from: 'x', epoch: 1, body: null }
      stranger.publish(subject, kept.seal({ subject }, wordsOf(here)))
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
      callback: (_, message) => void message.respond(wordsOf('a stranger')),
    })
    await stranger.flush()
    await until('it is asked', async () => {
      const answer = await near.ask('thing', 'x', { question: 'who?', timeoutMs: 500 })
      expect(answer).not.toBe('a stranger')
      return asked.length > 0
    })
    sub.unsubscribe()
    const before = asked.length
    const reply = stranger.request(`${prefix}.ask.thing.eA`, wordsOf('mine'), { timeout: 300 })
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
        complete: () => {
          made++
          return Promise.reject(new Error('no stranger has a call made'))
        },
      },
      check: async () => [],
      credentials: () => new Map([['demo', 'the credential of the operator']]),
      patienceMs: 0,
      proofFor: () => Promise.reject(new Error('nothing is sealed')),
      log: logOfLines(),
    })
    const sender = { version: 1, from: 'stranger', epoch: 1 }
    const notaries = Array.from({ length: 100 }, (_, at) => notaryOf(at))
    stranger.publish(`${prefix}.all.here`, wordsOf({ ...sender, body: null }))
    stranger.publish(`${prefix}.all.notaries`, wordsOf({ ...sender, body: notaries }))
    const header = {
      notary: notaryOf(1).notary,
      context: JSON.stringify({ account_id: 'of somebody else' }),
      encapsulated_key: 'ab'.repeat(32),
      sealed_credential: null,
    }
    stranger.publish(
      `${prefix}.open.${far.id}`,
      wordsOf({ ...sender, service: 'encrypted', header }),
      { reply: `${prefix}.channel.stranger.call` },
    )
    await until('all are refused', () => refusals(far, 'unsealed') === 3)
    await sleep(0)
    expect(peers.notaries()).toEqual([])
    expect(made).toBe(0)
    peers.stop()
  })
})

/** Seals as the gateway `id` would, which takes the key that all have. */
const sealerOf = (id: string) => createMessageSealer({ key: BUS_KEY, id, now: Date.now })
const wordsOf = (value: unknown) => Buffer.from(JSON.stringify(value))

/** The channels that gateways report to `gateway`, as a tally of so many frames sent on each. */
async function channelNames(prefix: string, gateway: string) {
  const subscription = stranger.subscribe(`${prefix}.tally.${gateway}`, { max: 1 })
  for await (const message of subscription) {
    const opened = sealerOf('a reader').open({ subject: message.subject }, message.data)
    if ('refusal' in opened) throw new Error(`expected a tally, got what is ${opened.refusal}`)
    const { body } = JSON.parse(Buffer.from(opened.body).toString()) as {
      readonly body: readonly [string, number][]
    }
    return (sent: number) => body.map(([name]) => [name, sent])
  }
  throw new Error('expected a tally')
}
