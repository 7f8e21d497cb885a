import { Readable } from 'node:stream'
import { afterEach, expect, it } from 'vitest'
import type { CompletionAnswer } from '#src/enclaves/enclave-client.ts'
import { EnclaveEndpoint, type EndpointOptions } from '#src/enclaves/enclave-endpoint.ts'
import { createLogger } from '#src/observability/logger.ts'
import {
  type ArrivedCall,
  answerWhole,
  type CompletionScript,
  namedEvent,
  startScriptedEnclave,
} from '../../support/scripted-enclave.ts'

const CALL = { context: '', provider: 'demo', credential: null }
const BODY = Buffer.from('{"model":"demo/echo","messages":[]}')
const log = createLogger({ level: 'silent', destination: { write: () => undefined } })

const ends: (() => Promise<void>)[] = []
afterEach(async () => {
  for (const end of ends.splice(0).reverse()) await end()
})

/** An endpoint of an enclave that is checked, and whose log is not read. */
async function start(
  script: CompletionScript = answerWhole({}),
  options: Partial<EndpointOptions> = {},
) {
  const enclave = await startScriptedEnclave({ script })
  const endpoint = new EnclaveEndpoint({
    socketPath: enclave.socketPath,
    callsMax: 8,
    settleMs: 0,
    log,
    ...options,
    check: async () => [],
    isKnownLog: async () => false,
    register: async () => undefined,
    follow: () => ({
      waitFor: async () => undefined,
      status: () => ({ isCommitting: true, size: 0, fault: '' }),
      stop: async () => undefined,
    }),
  })
  ends.push(
    () => enclave.stop().catch(() => undefined),
    () => endpoint.client.close(),
    () => endpoint.stopWatching(),
  )
  await endpoint.watch.look()
  return { enclave, endpoint }
}

/**
 * The same, with a call under way, and one beside it: a call that ended twice would end that one
 * too.
 */
async function startCall(script: CompletionScript, abort = new AbortController()) {
  const { enclave, endpoint } = await start(() => undefined)
  const beside = new AbortController()
  const other = endpoint.complete(CALL, BODY, beside.signal).catch(() => undefined)
  await expect.poll(() => enclave.calls.length).toBe(1)
  ends.push(async () => {
    beside.abort()
    await other
  })
  enclave.setScript(script)
  const answer = endpoint.complete(CALL, BODY, abort.signal)
  return { abort, answer, running: () => endpoint.state.calls - 1, endpoint }
}

function beginStream({ response }: ArrivedCall, chunks: number): void {
  response.writeHead(200, { 'content-type': 'text/event-stream' })
  for (let index = 0; index < chunks; index++) response.write(`data: {"a":${index}}\n\n`)
}

const streamOf: CompletionScript = (arrived) => {
  beginStream(arrived, 3)
  arrived.response.end(namedEvent('sealed', arrived.seal({})))
}

async function read(answer: CompletionAnswer, max = Number.POSITIVE_INFINITY): Promise<number> {
  if (answer.kind !== 'stream') throw new Error(`expected a stream, got ${answer.kind}`)
  let count = 0
  for await (const _ of answer.events) if (++count >= max) break
  return count
}

it('a call that is tracked ends with its failure, which is told', async () => {
  const { enclave, endpoint } = await start()
  await enclave.stop()
  await expect(endpoint.complete(CALL, BODY, new AbortController().signal)).rejects.toMatchObject({
    code: 'unavailable',
  })
  expect(endpoint.state).toMatchObject({ calls: 0, contact: 'lost' })
  expect(endpoint.error).toMatchObject({ code: 'unavailable', wasSent: false })
})

it('a call that is tracked lasts as long as its stream is read', async () => {
  const { answer, running } = await startCall(streamOf)
  const given = await answer
  expect(running()).toBe(1)
  await read(given)
  expect(running()).toBe(0)
})

it('a call that is tracked ends when its stream is left, or breaks', async () => {
  const left = await startCall(streamOf)
  await read(await left.answer, 1)
  expect(left.running()).toBe(0)
  const broken = await startCall((arrived) => {
    beginStream(arrived, 1)
    arrived.response.end()
  })
  await expect(read(await broken.answer)).rejects.toMatchObject({ code: 'unavailable' })
  expect(broken.running()).toBe(0)
})

it('a call that is tracked ends once when it is aborted, also when nobody reads its stream', async () => {
  const { abort, answer, running } = await startCall(streamOf)
  const given = await answer
  abort.abort()
  expect(running()).toBe(0)
  await read(given).catch(() => undefined)
  expect(running()).toBe(0)
})

const request = { from: 0, wait_ms: 10, max: 1, known_document: null }
const live = () => new AbortController().signal

it('pulls answer with nothing more once the end of the enclave is expected', async () => {
  const { enclave, endpoint } = await start()
  await endpoint.complete(CALL, BODY, live())
  const reply = await endpoint.client.pull(request, live())
  expect(reply).toMatchObject({ head: { size: 1 }, completions: [{ index: 0 }] })
  endpoint.client.expectEnd()
  await enclave.stop()
  expect(await endpoint.client.pull(request, live())).toEqual({
    ...reply,
    head: null,
    completions: [],
    documents: {},
  })
})

it('pulls fail when nothing was ever pulled, for then it is not known whose log it is', async () => {
  const { enclave, endpoint } = await start()
  endpoint.client.expectEnd()
  await enclave.stop()
  await expect(endpoint.client.pull(request, live())).rejects.toMatchObject({
    code: 'unavailable',
  })
})

const calls: Record<string, (endpoint: EnclaveEndpoint) => Promise<unknown>> = {
  whole: (endpoint) => endpoint.complete({ ...CALL, context: 'whole' }, BODY, never),
  streamed: async (endpoint) => read(await endpoint.complete(CALL, BODY, never)),
  encrypted: (endpoint) => endpoint.encrypted(ENCRYPTED, encryptedBody(), never),
}
it.each(Object.keys(calls))(
  'an enclave that hangs has its %s call ended, and is used when it goes on',
  async (name) => {
    const { enclave, endpoint } = await start((arrived) => {
      if (arrived.call.context === '') beginStream(arrived, 1)
    }, QUICK)
    const arrived = Promise.withResolvers<void>()
    enclave.setEncryptedScript(() => arrived.resolve())
    const call = calls[name]?.(endpoint)
    call?.catch(() => undefined)
    await expect.poll(() => endpoint.state.calls).toBe(1)
    await (name === 'encrypted' ? arrived.promise : expect.poll(() => enclave.calls.length).toBe(1))
    enclave.hang()
    await expect.poll(() => endpoint.watch.look().then(() => endpoint.state.calls)).toBe(0)
    await expect(call).rejects.toMatchObject({ code: 'timeout', wasSent: true })
    expect(endpoint.state).toMatchObject({ calls: 0, contact: 'lost' })
    enclave.goOn()
    await endpoint.watch.look()
    expect(endpoint.phase).toBe('usable')
  },
)

it('an enclave that hangs keeps its calls when it goes on in time', async () => {
  const { enclave, endpoint } = await start(() => undefined, { ...QUICK, silenceMaxMs: 60_000 })
  const abort = new AbortController()
  const call = endpoint.complete(CALL, BODY, abort.signal)
  call.catch(() => undefined)
  await expect.poll(() => enclave.calls.length).toBe(1)
  enclave.hang()
  for (let look = 0; look < 2; look++) await endpoint.watch.look()
  expect(endpoint.phase).toBe('unreachable')
  enclave.goOn()
  await endpoint.watch.look()
  expect(endpoint.phase).toBe('usable')
  expect(endpoint.state.calls).toBe(1)
  enclave.calls[0]?.response
    .writeHead(503)
    .end('{"status":503,"code":"not_ready","message":"later"}')
  expect(await call).toMatchObject({ kind: 'fault' })
})

const QUICK = { identityTimeoutMs: 100, silenceMaxMs: 300 }
const never = new AbortController().signal
const ENCRYPTED = {
  context: '',
  credentials: {},
  encapsulated_key: 'ab'.repeat(32),
  sealed_credential: null,
}
const encryptedBody = () => ({ stream: Readable.from([BODY]), fault: () => null })
