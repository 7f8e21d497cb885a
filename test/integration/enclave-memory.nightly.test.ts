import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdtemp, readFile, rm } from 'node:fs/promises'
import http from 'node:http'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { CALL_HEADER, ENCLAVE_PATHS, type PullReply } from '#enclave/protocol/enclave-api.ts'
import { type NsmServer, serveSoftwareNsm } from '#src/local/nsm/nsm-server.ts'
import { readAnswer } from '../enclave/support/test-enclave.ts'
import { completionOf, eventsOf, send, wholeAnswer } from '../support/hostile-answers.ts'
import {
  type HostileProvider,
  type Step,
  startHostileProvider,
} from '../support/hostile-provider.ts'
import { GREETING_CHUNKS } from '../support/hostile-scripts.ts'
import { until } from '../support/until.ts'

const MAIN = join(import.meta.dirname, '../../enclave/main.ts')

/**
 * The heap that enclave-init gives a verifier of 768 MB. The image itself takes 220 MB; the heap
 * gets two fifths of the rest.
 */
const HEAP_MEBIBYTES = 219

/**
 * The heap, half as much outside the heap, and Node.js itself. The enclave has 548 MB; the rest is
 * for its bridges.
 */
const RESIDENT_MEBIBYTES_MAX = 520

const CALLS = 32
const PIECE_BYTES = 2 ** 20
const PIECES = 23

let folder: string
let socketPath: string
let provider: HostileProvider
let nsm: NsmServer
let enclave: ChildProcess
/** The provider's answer, by the caller's model. */
const scripts = new Map<string, () => Iterable<Step>>()

beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), 'affidavit-'))
  socketPath = join(folder, 's')
  scripts.clear()
  scripts.set('demo/hello', () => [
    send(wholeAnswer({ body: JSON.stringify(completionOf('Hello')) })),
  ])
  provider = await startHostileProvider({
    answer: ({ body }) => scripts.get(JSON.parse(Buffer.from(body).toString()).model)?.() ?? [],
  })
  nsm = await serveSoftwareNsm({
    socketPath: `${socketPath}.nsm`,
    rootFile: join(folder, 'root.pem'),
  })
  enclave = spawn(
    process.execPath,
    [`--max-old-space-size=${HEAP_MEBIBYTES}`, '--no-liftoff', MAIN],
    {
      stdio: ['ignore', 'pipe', 'inherit'],
      env: {
        PATH: process.env.PATH,
        // The value that enclave-init sets.
        MALLOC_MMAP_THRESHOLD_: '131072',
        ENCLAVE_SOCKET: socketPath,
        NSM_SOCKET: nsm.socketPath,
        CHAIN_ID: '31337',
        CONTRACT_ADDRESS: '0x5fbdb2315678afecb367f032d93f642f64180aa3',
        DEMO_PROVIDER_ORIGIN: provider.origin,
      },
    },
  )
  await once(enclave.stdout ?? expect.unreachable(), 'data')
})
afterEach(async () => {
  enclave.kill('SIGKILL')
  await nsm.close()
  await provider.close()
  await rm(folder, { recursive: true, force: true })
})

function open(path: string, headers: http.OutgoingHttpHeaders, body: object) {
  const request = http.request({ socketPath, method: 'POST', path, headers })
  request.end(JSON.stringify(body))
  return readAnswer(request)
}

function complete(model: string, stream = false) {
  const call = { context: model, provider: 'demo', credential: 'sk-test' }
  const headers = { [CALL_HEADER]: Buffer.from(JSON.stringify(call)).toString('base64url') }
  return open(ENCLAVE_PATHS.completions, headers, {
    model,
    stream,
    messages: [{ role: 'user', content: 'Hi' }],
  })
}

async function pull(from: number): Promise<PullReply> {
  const { text } = await open(
    ENCLAVE_PATHS.pull,
    {},
    { from, wait_ms: 0, max: 1000, known_document: null },
  )
  return JSON.parse(text) as PullReply
}

/** Pulls and acknowledges all frames, and gives their contexts. */
async function pullContexts(): Promise<readonly string[]> {
  const contexts: string[] = []
  for (;;) {
    const { completions } = await pull(contexts.length)
    if (completions.length === 0) return contexts
    contexts.push(...completions.map(({ context }) => context))
  }
}

/**
 * Expects that the process lives, and that its peak memory, as the kernel counted it, is bounded.
 */
async function expectBounded(name: string): Promise<void> {
  expect(enclave.exitCode).toBeNull()
  const status = await readFile(`/proc/${enclave.pid}/status`, 'utf8')
  const resident = Number(/VmHWM:\s+(\d+) kB/.exec(status)?.[1]) / 1024
  console.info(`${name}: ${resident.toFixed(0)} MiB resident at most`)
  expect(resident).toBeLessThan(RESIDENT_MEBIBYTES_MAX)
}

const repeated = (part: string) => Buffer.from(part.repeat(Math.ceil(PIECE_BYTES / part.length)))

/** 23 MiB of `part`, or as many as `pieces` says, in one answer. */
function* wholeOf(part: string, pieces = PIECES): Iterable<Step> {
  yield send('HTTP/1.1 200 OK\r\n\r\n{"choices":[{"message":{"content":"x"}}],"x":[')
  yield { kind: 'repeat', bytes: repeated(part), times: pieces }
  yield send(`${part.replace(/,$/, '')}]}`)
  yield { kind: 'end' }
}

/** 23 MiB in events of `bytes` each, which add to one member of the message. */
function* streamOf(part: string, bytes: number): Iterable<Step> {
  yield send('HTTP/1.1 200 OK\r\n\r\n')
  yield send(eventsOf(GREETING_CHUNKS.slice(0, 2)))
  const items = part.repeat(Math.ceil(bytes / part.length)).replace(/,$/, '')
  const event = Buffer.from(`data: {"choices":[{"index":0,"delta":{"x":[${items}]}}]}\n\n`)
  yield { kind: 'repeat', bytes: event, times: Math.floor((PIECES * PIECE_BYTES) / event.length) }
  yield send('data: [DONE]\n\n')
  yield { kind: 'end' }
}

/** One answer, or a stream of events of 64 KiB, with `mebibytes` of text. */
function* wholeText(part: string, mebibytes: number): Iterable<Step> {
  yield send('HTTP/1.1 200 OK\r\n\r\n{"choices":[{"message":{"content":"')
  yield {
    kind: 'repeat',
    bytes: Buffer.from(part.repeat(2 ** 18)),
    times: (mebibytes * 4) / Buffer.byteLength(part),
  }
  yield send('"}}]}')
  yield { kind: 'end' }
}
function* streamText(part: string, mebibytes: number): Iterable<Step> {
  yield send('HTTP/1.1 200 OK\r\n\r\n')
  const event = eventsOf([
    { choices: [{ index: 0, delta: { content: part.repeat(2 ** 16 / part.length) } }] },
  ])
  yield {
    kind: 'repeat',
    bytes: Buffer.from(event.replaceAll('\\\\', '\\')),
    times: mebibytes * 16,
  }
  yield send(
    'data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n',
  )
  yield { kind: 'end' }
}

type Attack = readonly [string, () => Iterable<Step>, boolean]

describe('32 hostile answers of 23 MiB at once, in the memory of an enclave of 768 MB', () => {
  it.each<Attack>([
    ['empty objects', () => wholeOf('{},'), false],
    ['numbers', () => wholeOf('0,'), false],
    ['arrays in arrays', () => wholeOf('[[[[[[[[]]]]]]]],'), false],
    ['empty objects in large events', () => streamOf('{},', 3 * 2 ** 20), true],
    ['empty objects in events of the size of a packet', () => streamOf('{},', 60_000), true],
    ['objects in small events', () => streamOf('{"a":0},', 600), true],
  ])(
    'hostile answers of %s end their own calls alone',
    { timeout: 300_000 },
    async (name, script, isStream) => {
      scripts.set('demo/hostile', script)
      expect((await complete('demo/hello')).status).toBe(200)
      const attacks = Array.from({ length: CALLS }, () => complete('demo/hostile', isStream))
      await until('all calls have reached the provider', () => provider.requests.length > CALLS)
      const innocent = await complete('demo/hello')
      expect(innocent.status).toBe(200)
      for (const { text } of await Promise.all(attacks))
        expect(text).toContain('"code":"answer_too_large"')
      expect((await complete('demo/hello')).status).toBe(200)
      const contexts = await pullContexts()
      expect(contexts.filter((context) => context === 'demo/hello')).toHaveLength(3)
      expect(contexts).toHaveLength(isStream ? 3 + CALLS : 3)
      await expectBounded(name)
    },
  )

  it.each<Attack>([
    ['text of escapes', () => wholeText('\\u0000', 8), false],
    ['text that is not ASCII', () => wholeText('\u{1f642}', 8), false],
    ['text of escapes in events', () => streamText('\\u0000', 8), true],
    ['objects, as many as one answer may have', () => wholeOf('{},', 1), false],
  ])(
    'hostile answers of %s, each within the limits, are taken in or end, one by one',
    { timeout: 300_000 },
    async (name, script, isStream) => {
      scripts.set('demo/hostile', script)
      const attacks = Array.from({ length: CALLS }, () => complete('demo/hostile', isStream))
      const answers = await Promise.all(attacks)
      const sealed = answers.filter(({ text }) => text.includes('"index"'))
      for (const { text } of answers)
        if (!text.includes('"outcome":"complete"'))
          expect(text).toMatch(/"code":"(answer_too_large|log_full)"/)
      expect(await pullContexts()).toHaveLength(sealed.length)
      expect(sealed.length).toBeGreaterThan(0)
      expect((await complete('demo/hello')).status).toBe(200)
      await expectBounded(`${name}, ${sealed.length} sealed`)
    },
  )
})
