import http from 'node:http'
import { setTimeout as sleep } from 'node:timers/promises'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { decodeHex, encodeUtf8 } from '#attestation/bytes.ts'
import { digestBootConfiguration } from '#attestation/evidence/boot-configuration.ts'
import { canonicalizeJson } from '#attestation/json/canonical.ts'
import { appendLeaves, emptyEdge, rootOf } from '#attestation/merkle/edge.ts'
import { hashLeaf } from '#attestation/merkle/hash.ts'
import { verifyTreeHead } from '#attestation/tree-head.ts'
import { nativeSha256 } from '#enclave/log/seal.ts'
import { ENCLAVE_PATHS, type ProviderEntry } from '#enclave/protocol/enclave-api.ts'
import { AT_ONCE_MS } from '../support/at-once.ts'
import { completionOf, send, wholeAnswer } from '../support/hostile-answers.ts'
import {
  type HostileProvider,
  type Step,
  startHostileProvider,
} from '../support/hostile-provider.ts'
import { until } from '../support/until.ts'
import {
  DOMAIN,
  readAnswer,
  startTestEnclave,
  type TestEnclave,
  type TestOptions,
} from './support/test-enclave.ts'

const question = { model: 'hostile', messages: [] }
const ok = () => [send(wholeAnswer({ body: JSON.stringify(completionOf('Hello')) }))]

let provider: HostileProvider
let script: () => Iterable<Step>
let providers: readonly ProviderEntry[]
let enclave: TestEnclave | undefined

beforeEach(async () => {
  script = ok
  provider = await startHostileProvider({ answer: () => script() })
  providers = [{ name: 'hostile', origin: provider.origin, path: '/chat', models: ['hostile'] }]
})

afterEach(async () => {
  await enclave?.stop()
  await provider.close()
})

async function start(options: Partial<TestOptions> = {}): Promise<TestEnclave> {
  enclave = await startTestEnclave({ providers, ...options })
  return enclave
}

describe('identity', () => {
  it("the enclave's identity names the key, the attested boot configuration, and the log", async () => {
    const started = await start()
    const identity = await started.identity()
    expect(identity).toMatchObject({
      public_key: started.enclave.publicKey,
      notary: started.enclave.notary,
      boot_configuration: {
        protocol_version: 1,
        providers,
        chain_id: 31337,
        contract: DOMAIN.contract,
      },
      log: { size: 0, acknowledged: 0 },
    })
    const userData = digestBootConfiguration(identity.boot_configuration)
    const recomputed = nativeSha256(
      encodeUtf8(canonicalizeJson(JSON.parse(JSON.stringify(identity.boot_configuration)))),
    )
    expect(Buffer.from(recomputed)).toEqual(Buffer.from(userData))
    const document = Buffer.from(identity.attestation, 'base64')
    expect(document.includes(Buffer.from(userData))).toBe(true)
    expect(document.includes(Buffer.from(decodeHex(identity.public_key)))).toBe(true)
  })
})

describe('the log', () => {
  it('the log is handed over with a signed head, again until it is acknowledged, then forgotten', async () => {
    const started = await start()
    for (let count = 0; count < 3; count++)
      await started.complete(question, { context: `call ${count}` })
    const reply = await started.pull({ max: 2 })
    expect(reply.completions.map(({ context }) => context)).toEqual(['call 0', 'call 1'])
    const leaves = reply.completions.map(({ receipt }) => hashLeaf(encodeUtf8(receipt)))
    const root = rootOf(appendLeaves(emptyEdge, leaves).edge)
    const signature = decodeHex(reply.head?.signature ?? '')
    expect(reply.head).toMatchObject({ size: 2, root: Buffer.from(root).toString('hex') })
    verifyTreeHead({ domain: DOMAIN, head: { size: 2, root }, signature, notary: reply.notary })
    expect((await started.pull({ max: 2 })).completions).toEqual(reply.completions)
    expect((await started.pull({ from: 2 })).completions.map(({ index }) => index)).toEqual([2])
    expect((await started.identity()).log).toEqual({ size: 3, acknowledged: 2 })
  })

  it('a pull waits for the next completion, no longer than it said', async () => {
    const started = await start()
    const begun = performance.now()
    const waiting = started.pull({ wait_ms: 10_000 })
    await sleep(50)
    await started.complete(question)
    expect((await waiting).completions).toHaveLength(1)
    expect(performance.now() - begun).toBeLessThan(5_000)
    const idle = performance.now()
    expect((await started.pull({ from: 1, wait_ms: 150 })).completions).toEqual([])
    expect(performance.now() - idle).toBeGreaterThan(140)
  })

  it('a full log refuses calls before their provider is asked, until it is acknowledged', async () => {
    const started = await start({ limits: { pendingBytesMax: 520_000 } })
    const large = { ...question, user: 'x'.repeat(100_000) }
    expect((await started.complete(large)).status).toBe(200)
    expect((await started.complete(large)).json).toMatchObject({ status: 503, code: 'log_full' })
    expect(provider.requests).toHaveLength(1)
    await started.takeAll()
    expect((await started.complete(large)).status).toBe(200)
  })

  it('the log refuses a call beyond its limit of calls at once, and takes a call when another ended', async () => {
    const started = await start({ limits: { callsMax: 1 } })
    const { promise, resolve } = Promise.withResolvers<void>()
    script = () => [{ kind: 'wait', until: promise }, ...ok()]
    const first = started.complete(question)
    await until('the provider is asked', () => provider.requests.length === 1)
    expect((await started.complete(question)).json).toMatchObject({ status: 503, code: 'too_busy' })
    resolve()
    expect((await first).status).toBe(200)
    script = ok
    expect((await started.complete(question)).status).toBe(200)
  })
})

describe('the attestation call', () => {
  it('the attestation call gives a fresh document over the nonce', async () => {
    const started = await start()
    const nonce = '00112233445566778899aabbccddeeff'
    const { status, text } = await started.get(`${ENCLAVE_PATHS.attestation}?nonce=${nonce}`)
    const { document } = JSON.parse(text) as { readonly document: string }
    expect(status).toBe(200)
    expect(Buffer.from(document, 'base64').includes(Buffer.from(nonce, 'hex'))).toBe(true)
  })
})

describe('a call that is not of the protocol', () => {
  it.each([
    ['an unknown path', 'POST', '/v1/other'],
    ['a path upwards', 'GET', '/v1/../etc'],
  ])('a call that is not of the protocol is refused: %s', async (_, method, path) => {
    const started = await start()
    const request = http.request({ socketPath: started.socketPath, method, path })
    request.end()
    expect((await readAnswer(request)).json).toMatchObject({ status: 404, code: 'invalid_call' })
  })

  it('a completion without its header and a pull that is too long are refused', async () => {
    const started = await start()
    expect((await started.post(ENCLAVE_PATHS.completions, '{}')).json).toMatchObject({
      code: 'invalid_call',
    })
    expect((await started.post(ENCLAVE_PATHS.pull, 'x'.repeat(2 ** 21))).json).toMatchObject({
      status: 413,
    })
  })
})

describe('an enclave without a valid document', () => {
  it('an enclave without a valid document refuses calls, asks no provider, and does not say who it is', async () => {
    const clock = { aheadMs: 0 }
    const started = await start({ now: () => Date.now() + clock.aheadMs })
    expect((await started.complete(question)).status).toBe(200)
    clock.aheadMs = 3 * 3_600_000
    expect((await started.complete(question)).json).toMatchObject({
      status: 503,
      code: 'not_ready',
    })
    expect((await started.get(ENCLAVE_PATHS.identity)).json).toMatchObject({ code: 'not_ready' })
    expect(provider.requests).toHaveLength(1)
    expect((await started.pull()).completions).toHaveLength(1)
  })

  it('an enclave without a valid document at the end of a call seals nothing, and the stream says so', async () => {
    const clock = { aheadMs: 0 }
    const started = await start({ now: () => Date.now() + clock.aheadMs })
    script = function* () {
      yield send(
        'HTTP/1.1 200 OK\r\n\r\ndata: {"choices":[{"delta":{"content":"Hi"},"finish_reason":"stop"}]}\n\n',
      )
      clock.aheadMs = 3 * 3_600_000
      yield { kind: 'end' }
    }
    const { chunks, fault, sealed } = await started.stream(question)
    expect(chunks.map(({ choices }) => choices[0]?.delta.content)).toEqual(['', 'Hi', ''])
    expect([fault?.code, fault?.may_be_made, sealed]).toEqual(['not_ready', true, null])
    expect((await started.pull()).completions).toEqual([])
  })
})

describe('an error that nobody foresaw', () => {
  it('an unforeseen error says nothing outside, and its message is not logged', async () => {
    const clock = { isBroken: false }
    const now = () => {
      if (clock.isBroken) throw new Error('planted detail')
      return Date.now()
    }
    const started = await start({ now })
    clock.isBroken = true
    const { json } = await started.complete(question)
    clock.isBroken = false
    expect(json).toEqual({
      status: 500,
      code: 'internal_error',
      message: 'The enclave failed; its log has more.',
    })
    expect(started.logged.join('\n')).toContain('call failed')
    expect(started.logged.join('\n')).not.toContain('planted detail')
    expect((await started.complete(question)).status).toBe(200)
  })
})

describe('an enclave that stops', () => {
  it('an enclave that stops refuses new completions, finishes running ones, and lets them be fetched', async () => {
    const started = await start()
    script = () => [{ kind: 'pause', durationMs: 200 }, ...ok()]
    const running = started.complete(question)
    await until('the provider is asked', () => provider.requests.length > 0)
    const stopping = started.enclave.stop(5_000)
    expect((await started.complete(question)).json).toMatchObject({
      status: 503,
      code: 'not_ready',
    })
    expect((await running).status).toBe(200)
    expect((await started.pull({ wait_ms: 1000 })).completions).toHaveLength(1)
    const last = started.pull({ from: 1, wait_ms: 10_000 })
    expect(await stopping).toEqual({ unacknowledged: 0 })
    expect((await last).completions).toEqual([])
  })

  it('an enclave that stops waits no longer than its grace, and counts what was not fetched', async () => {
    const started = await start()
    await started.complete(question)
    const begun = performance.now()
    expect(await started.enclave.stop(200)).toEqual({ unacknowledged: 1 })
    expect(performance.now() - begun).toBeLessThan(AT_ONCE_MS)
  })
})
