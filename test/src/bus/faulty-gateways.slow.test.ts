import { type ChildProcess, spawn } from 'node:child_process'
import { randomUUID } from 'node:crypto'
import { once } from 'node:events'
import { writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest'
import { type Bus, startBus } from '#src/bus/bus.ts'
import { createLogger } from '#src/observability/logger.ts'
import { BUS_KEY, NATS, type NatsServer, startNatsServer } from '../../support/nats-server.ts'
import { until } from '../../support/until.ts'

const SCRIPT = fileURLToPath(new URL('../../support/bus-process.ts', import.meta.url))

let nats: NatsServer
let near: Bus
let prefix: string
const processes: ChildProcess[] = []

beforeAll(async () => {
  if (!NATS.isMet) return
  const config = join(tmpdir(), `nats-${randomUUID()}.conf`)
  // As docs/operating/several-gateways.md asks for.
  await writeFile(config, 'write_deadline: "2s"')
  nats = await startNatsServer(['-c', config])
})
afterAll(() => nats?.stop())
beforeEach(() => {
  if (!NATS.isMet) return
  prefix = `test-${randomUUID()}`
  const log = createLogger({ level: 'silent', destination: { write: () => undefined } })
  near = startBus(
    { servers: [nats.url], credentialsFile: null, caFile: null, subjectPrefix: prefix },
    { key: BUS_KEY, makeId: randomUUID, now: Date.now, log },
  )
})
afterEach(async () => {
  for (const process of processes.splice(0)) process.kill('SIGKILL')
  await near?.stop()
})

type Far = { readonly id: string; readonly process: ChildProcess }

async function startFar(): Promise<Far> {
  const child = spawn(process.execPath, [SCRIPT, nats.url, prefix], {
    stdio: ['ignore', 'pipe', 'inherit'],
  })
  processes.push(child)
  const [line] = (await once(child.stdout, 'data')) as [Buffer]
  const id = line.toString().trim()
  await until('it is found', () => near.peers().includes(id))
  return { id, process: child }
}

/** A channel on which one message went there and back, and nothing was ended. */
async function talk({ id }: Far) {
  const channel = near.open(id, 'echo', null)
  const messages = channel.messages[Symbol.asyncIterator]()
  await channel.send(Buffer.from('hello'))
  const { value } = await messages.next()
  expect(Buffer.from(value ?? []).toString()).toBe('hello')
  return { channel, messages }
}

const seconds = async (run: () => Promise<unknown>) => {
  const startedAtMs = performance.now()
  await run()
  return (performance.now() - startedAtMs) / 1000
}

describe.runIf(NATS.isMet)(NATS.title('when another gateway'), () => {
  it('calls to a gateway that is killed end within seconds, and none looks whole', async () => {
    const far = await startFar()
    const { messages } = await talk(far)
    far.process.kill('SIGKILL')
    expect(
      await seconds(() => expect(messages.next()).rejects.toMatchObject({ code: 'lost' })),
    ).toBeLessThan(6)
    expect(near.status()).toMatchObject({ isUp: true, peers: 0, channels: 0 })
  })

  it('a gateway that is stopped and goes on forgets what was under way, and talks again', async () => {
    const far = await startFar()
    const { messages } = await talk(far)
    far.process.kill('SIGSTOP')
    expect(
      await seconds(() => expect(messages.next()).rejects.toMatchObject({ code: 'lost' })),
    ).toBeLessThan(6)
    far.process.kill('SIGCONT')
    await until('it is found again', () => near.peers().includes(far.id))
    // Calls made in the moment of its coming may be lost; they end, and later ones do not.
    await until('they talk', async () =>
      talk(far).then(
        () => true,
        () => false,
      ),
    )
  })
})

describe.runIf(NATS.isMet)(NATS.title('when the server hangs'), () => {
  it('calls end within seconds when the server hangs, and all works again when it goes on', async () => {
    const far = await startFar()
    const { messages } = await talk(far)
    process.kill(nats.pid(), 'SIGSTOP')
    try {
      expect(
        await seconds(() => expect(messages.next()).rejects.toMatchObject({ code: 'lost' })),
      ).toBeLessThan(6)
      expect(near.open(far.id, 'echo', null).signal.aborted).toBe(true)
      await until('it is given up', () => !near.status().isUp)
    } finally {
      process.kill(nats.pid(), 'SIGCONT')
    }
    await until(
      'they talk',
      async () =>
        talk(far).then(
          () => true,
          () => false,
        ),
      30_000,
    )
  })
})
