import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import type { Nsm } from '#enclave/nsm/nsm.ts'
import type { ProviderEntry } from '#enclave/protocol/enclave-api.ts'
import { serveSoftwareNsm } from '#src/local/nsm/nsm-server.ts'
import {
  startTestEnclave,
  type TestEnclave,
  type TestOptions,
} from '../enclave/support/test-enclave.ts'
import { createEncryptedFetch, type EncryptedFetch } from '../support/encrypted-fetch.ts'
import { startGateway, type TestGateway } from '../support/gateway.ts'
import {
  chunked,
  completionOf,
  EVENT_STREAM_HEAD,
  eventsOf,
  send,
  wholeAnswer,
} from '../support/hostile-answers.ts'
import {
  type HostileProvider,
  type Step,
  startHostileProvider,
} from '../support/hostile-provider.ts'
import { GREETING_CHUNKS } from '../support/hostile-scripts.ts'
import { SCRIPTED_DOMAIN } from '../support/scripted-enclave.ts'
import { openSoftwareNsm } from '../support/software-nsm.ts'
import { until } from '../support/until.ts'

const HOUR_MS = 3_600_000
const repository = join(import.meta.dirname, '../..')
const hello = () => [send(wholeAnswer({ body: JSON.stringify(completionOf('Hello')) }))]

let provider: HostileProvider
let script: () => Iterable<Step>
let gateway: TestGateway
const stops: (() => Promise<unknown>)[] = []

beforeEach(async () => {
  script = hello
  provider = await startHostileProvider({ answer: () => script() })
  stops.push(() => provider.close())
})
afterEach(async () => {
  for (const stop of stops.splice(0).reverse()) await stop()
})

const tableOf = (origin: string): readonly ProviderEntry[] => [
  { name: 'hostile', origin, path: '/chat', models: ['hostile'] },
]

/** Starts an enclave in this process, and a gateway in front of the enclave. */
async function start(options: Partial<TestOptions> = {}): Promise<TestEnclave> {
  const enclave = await startTestEnclave({
    providers: tableOf(provider.origin),
    domain: SCRIPTED_DOMAIN,
    ...options,
  })
  stops.push(() => enclave.stop())
  gateway = await startGateway({ enclaveSocket: enclave.socketPath })
  stops.push(() => gateway.stop())
  return enclave
}

/** Makes a customer's call, with the customer's own provider key. */
async function ask({ stream = false, content = 'Hi', by = fetch as EncryptedFetch } = {}) {
  const reply = await by(`${gateway.url}/v1/verified/chat/completions`, {
    method: 'POST',
    headers: {
      authorization: `Bearer ${gateway.key}`,
      'content-type': 'application/json',
      // An encrypted call would need to seal it.
      ...(by === fetch ? { 'fine-tune-authorization': 'Bearer sk-test' } : {}),
    },
    body: JSON.stringify({ model: 'hostile', messages: [{ role: 'user', content }], stream }),
  })
  return { status: reply.status, text: await reply.text() }
}

/** Expects this error, without a part of a completion or a proof. */
function expectRefusal(
  { status, text }: Awaited<ReturnType<typeof ask>>,
  expected: { readonly status: number; readonly code: string; readonly message?: string },
): void {
  expect(text).not.toMatch(/"(choices|signature|public_key|tx_hash|attestation)"/)
  const { error } = JSON.parse(text)
  expect([status, error.code]).toEqual([expected.status, expected.code])
  if (expected.message !== undefined) expect(error.message).toContain(expected.message)
}

/** Later, no part of a failed call can be found either. */
async function countRecords(): Promise<number> {
  const reply = await fetch(`${gateway.url}/v1/verified/chat/completions`, {
    headers: { authorization: `Bearer ${gateway.key}` },
  })
  return JSON.parse(await reply.text()).completions.length
}

describe('a security module that fails', () => {
  it('a security module that fails ends calls once its last document is too old, and fresh attestations at once', async () => {
    const clock = { aheadMs: 0 }
    const now = () => Date.now() + clock.aheadMs
    const failure = { isFailing: false }
    await start({ now, nsm: await failingNsm(failure, now) })
    expect((await ask()).status).toBe(200)
    failure.isFailing = true
    expect((await ask()).status).toBe(200)
    const attestation = await fetch(`${gateway.url}/v1/attestation?nonce=${'ab'.repeat(16)}`)
    expect([attestation.status, JSON.parse(await attestation.text()).error.code]).toEqual([
      503,
      'not_ready',
    ])
    clock.aheadMs = 3 * HOUR_MS
    expectRefusal(await ask(), { status: 503, code: 'not_ready' })
    expect(provider.requests).toHaveLength(2)
    expect(await countRecords()).toBe(2)
  })
})

describe('a clock that is set wrong', () => {
  it('a clock that is set wrong ends calls in an error before the provider is asked, until it is right again', async () => {
    const clock = { aheadMs: 0 }
    const options = { now: () => Date.now() + clock.aheadMs, monotonic: () => performance.now() }
    await start({
      ...options,
      nsm: await openSoftwareNsm({ rootFile: null, now: Date.now }),
    })
    expect((await ask()).status).toBe(200)
    clock.aheadMs = -60_000
    expectRefusal(await ask(), { status: 503, code: 'not_ready' })
    expect(provider.requests).toHaveLength(1)
    clock.aheadMs = 0
    await expect.poll(async () => (await ask()).status, { timeout: 30_000 }).toBe(200)
  })

  it('a clock that is set wrong in the middle of a stream ends it in an error without a proof', async () => {
    const clock = { aheadMs: 0 }
    await start({
      now: () => Date.now() + clock.aheadMs,
      monotonic: () => performance.now(),
      nsm: await openSoftwareNsm({ rootFile: null, now: Date.now }),
    })
    script = function* () {
      yield send(EVENT_STREAM_HEAD)
      yield send(chunked(eventsOf(GREETING_CHUNKS)))
      clock.aheadMs = HOUR_MS
      yield send(chunked(''))
    }
    const { status, text } = await ask({ stream: true })
    expect(status).toBe(200)
    expect(text).toContain('event: error')
    expect(text).toContain("clock is not in step with its security module's")
    expect(text).not.toMatch(/"(signature|tx_hash)"|\[DONE\]/)
    clock.aheadMs = 0
    expect(await countRecords()).toBe(0)
  })
})

describe('a log that is full', () => {
  it('a log that is full ends calls in an error before the provider is asked', async () => {
    await start({ limits: { pendingBytesMax: 2 ** 20 } })
    expectRefusal(await ask({ content: 'x'.repeat(2 ** 20) }), { status: 503, code: 'log_full' })
    expect(provider.requests).toHaveLength(0)
    expect(await countRecords()).toBe(0)
    expect((await ask()).status).toBe(200)
  })
})

describe('the network of an enclave', () => {
  it('an enclave reaches only the hosts of its table, and follows no redirect elsewhere', async () => {
    const elsewhere = await startHostileProvider({ answer: hello })
    stops.push(() => elsewhere.close())
    await start()
    for (const status of [301, 302, 307, 308]) {
      script = () => [
        send(wholeAnswer({ status, headers: { location: `${elsewhere.origin}/chat` }, body: '' })),
      ]
      const answer = await ask()
      expect(answer.status).toBeGreaterThanOrEqual(400)
      expect(answer.text).not.toContain('signature')
    }
    expect(elsewhere.countConnections()).toBe(0)
    expect(await countRecords()).toBe(0)
  })
})

describe('an enclave that ends in the middle of a call', () => {
  it('an enclave that dies in a call leaves its caller an error without a proof, and the next enclave serves', async () => {
    const folder = await mkdtemp(join(tmpdir(), 'affidavit-enclave-'))
    stops.push(() => rm(folder, { recursive: true, force: true }))
    const socketPath = join(folder, 'enclave.sock')
    const small = await startEnclaveProcess(socketPath, 32)
    gateway = await startGateway({ enclaveSocket: socketPath })
    stops.push(() => gateway.stop())
    expect((await ask()).status).toBe(200)
    // Parsing would take many times its size. Such an answer ends the call, and not the enclave.
    const members = '{},'.repeat(6_000_000)
    script = () => [send(wholeAnswer({ body: `{"choices":[${members}{}]}` }))]
    expectRefusal(await ask(), { status: 502, code: 'answer_too_large' })
    expect(small.exitCode ?? small.signalCode).toBe(null)
    script = () => [{ kind: 'stall' }]
    const asked = provider.requests.length
    const broken = ask()
    await until('the provider is asked', () => provider.requests.length > asked)
    small.kill('SIGABRT')
    expectRefusal(await broken, { status: 503, code: 'enclave_unavailable' })
    await ended(small)
    expect(small.signalCode ?? small.exitCode).not.toBe(0)
    expect(await countRecords()).toBe(1)
    await startEnclaveProcess(socketPath, 256)
    script = hello
    await expect.poll(async () => (await ask()).status, { timeout: 20_000 }).toBe(200)
    expect(await countRecords()).toBe(2)
  })
})

describe('an enclave that hangs', () => {
  it('an enclave that hangs ends its calls before the provider would, gets no others, and serves when it goes on', async () => {
    const folder = await mkdtemp(join(tmpdir(), 'affidavit-enclave-'))
    stops.push(() => rm(folder, { recursive: true, force: true }))
    const socketPath = join(folder, 'enclave.sock')
    const enclave = await startEnclaveProcess(socketPath, 256)
    const credentials = new Map([['hostile', 'sk-test']])
    gateway = await startGateway({ enclaveSocket: socketPath, credentials })
    stops.push(() => gateway.stop())
    expect((await ask()).status).toBe(200)
    script = function* () {
      yield send(EVENT_STREAM_HEAD)
      yield send(chunked(eventsOf(GREETING_CHUNKS.slice(0, 1))))
      yield { kind: 'stall' }
    }
    const asked = provider.requests.length
    const streamed = ask({ stream: true })
    await until('the stream begins', () => provider.requests.length > asked)
    script = () => [{ kind: 'stall' }]
    const whole = ask()
    const encrypted = ask({ by: createEncryptedFetch(() => gateway.url) }).catch(String)
    await until('all are asked', () => provider.requests.length > asked + 2)
    const startedAt = performance.now()
    enclave.kill('SIGSTOP')
    expectRefusal(await whole, { status: 504, code: 'enclave_timeout' })
    const { text } = await streamed
    expect(text).toContain('"code":"enclave_timeout"')
    // The answer comes from the gateway, not from an enclave, so the client does not show its text.
    expect(await encrypted).toContain('Missing Ehbp-Response-Nonce')
    const timedOut = gateway.logLines.filter((line) => line.includes('"error":"enclave_timeout"'))
    expect(timedOut.map((line) => JSON.parse(line).status).sort()).toEqual([200, 504, 504])
    expect(text).not.toMatch(/"(signature|tx_hash)"|\[DONE\]/)
    expect(performance.now() - startedAt).toBeLessThan(60_000)
    // The enclave gets no calls now: they are refused at once, without a wait for an answer.
    expectRefusal(await ask(), { status: 504, code: 'enclave_timeout' })
    enclave.kill('SIGCONT')
    script = hello
    await expect.poll(async () => (await ask()).status, { timeout: 20_000 }).toBe(200)
  })
})

async function failingNsm(
  failure: { readonly isFailing: boolean },
  now: () => number,
): Promise<Nsm> {
  const nsm = await openSoftwareNsm({ rootFile: null, now })
  return {
    ...nsm,
    attest: async (input) => {
      if (failure.isFailing) throw new Error('the module fails')
      return nsm.attest(input)
    },
  }
}

/** A process of enclave/main.ts with a heap of `heapMiB`. */
async function startEnclaveProcess(socketPath: string, heapMiB: number): Promise<ChildProcess> {
  const main = join(repository, 'enclave/main.ts')
  const nsm = await serveSoftwareNsm({
    socketPath: `${socketPath}.nsm`,
    rootFile: `${socketPath}.pem`,
  })
  stops.push(() => nsm.close())
  const child = spawn(process.execPath, [`--max-old-space-size=${heapMiB}`, main], {
    stdio: ['ignore', 'pipe', 'ignore'],
    env: {
      PATH: process.env.PATH,
      ENCLAVE_SOCKET: socketPath,
      NSM_SOCKET: nsm.socketPath,
      CHAIN_ID: String(SCRIPTED_DOMAIN.chainId),
      CONTRACT_ADDRESS: SCRIPTED_DOMAIN.contract,
      PROVIDERS_FILE: await writeTable(socketPath),
    },
  })
  stops.push(async () => {
    child.kill('SIGKILL')
    await ended(child)
  })
  await once(child.stdout, 'data')
  return child
}

async function writeTable(socketPath: string): Promise<string> {
  const file = `${socketPath}.providers.json`
  await writeFile(file, JSON.stringify(tableOf(provider.origin)))
  return file
}

async function ended(child: ChildProcess): Promise<void> {
  if (child.exitCode === null && child.signalCode === null) await once(child, 'exit')
}
