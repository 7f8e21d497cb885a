import { createHash } from 'node:crypto'
import { EventEmitter } from 'node:events'
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest'
import { decodeHex } from '#attestation/bytes.ts'
import { verifyCompletionSignature } from '#attestation/completion-signature.ts'
import { parseStrictJson } from '#attestation/json/parse-strict.ts'
import type { JsonObject } from '#attestation/json/value.ts'
import { parseReceipt } from '#attestation/receipt.ts'
import { hashCompletion } from '#attestation/record-hash.ts'
import type { SealedCompletion } from '#enclave/protocol/enclave-api.ts'
import { AT_ONCE_MS } from '../../support/at-once.ts'
import { completionOf, send, wholeAnswer } from '../../support/hostile-answers.ts'
import {
  type HostileProvider,
  type ReceivedRequest,
  type Step,
  startHostileProvider,
} from '../../support/hostile-provider.ts'
import { until } from '../../support/until.ts'
import { startTestEnclave, type TestEnclave } from '../support/test-enclave.ts'

let provider: HostileProvider
let enclave: TestEnclave
let script: (request: ReceivedRequest) => Iterable<Step>

const question = { model: 'hostile', messages: [{ role: 'user', content: 'Hi' }] }
const ok = (body: string | Uint8Array | object, more = {}) =>
  send(
    wholeAnswer({
      body: typeof body === 'string' || body instanceof Uint8Array ? body : JSON.stringify(body),
      ...more,
    }),
  )

beforeAll(async () => {
  provider = await startHostileProvider({ answer: (request) => script(request) })
  enclave = await startTestEnclave({
    providers: [
      {
        name: 'hostile',
        origin: provider.origin,
        path: '/v1/chat/completions',
        models: ['hostile'],
      },
      { name: 'closed', origin: 'http://127.0.0.1:1', path: '/', models: ['closed'] },
    ],
    limits: {
      firstByteTimeoutMs: 1_000,
      idleTimeoutMs: 1_000,
      answerTimeoutMs: 3_000,
      answerBytesMax: 2 ** 20,
    },
  })
})

afterAll(async () => {
  await enclave.stop()
  await provider.close()
})

beforeEach(async () => {
  script = () => [ok(completionOf('Hello'))]
  await enclave.takeAll()
})

async function takeOne(): Promise<SealedCompletion> {
  const [sealed, ...others] = await enclave.takeAll()
  if (sealed === undefined || others.length > 0)
    throw new Error('expected one completion in the log')
  return sealed
}

const receiptOf = ({ receipt }: SealedCompletion) =>
  parseReceipt(parseStrictJson(Buffer.from(receipt)))
const sha256 = (bytes: string | Uint8Array) => createHash('sha256').update(bytes).digest('hex')

describe('a completion', () => {
  it('a completion is sealed: hashes, signature and receipt fit the bytes that went over the wire', async () => {
    const body = `{ "model":"hostile", "messages":[{"role":"user","content":"Hi","name":null}], "temperature":1.0, "user":null }`
    const answer = JSON.stringify(completionOf('Hello \u0000 😀', { system_fingerprint: 'fp' }))
    script = () => [ok(answer)]
    const before = Date.now()
    const { status, json } = await enclave.complete(body, { context: 'ctx' })
    expect(status).toBe(200)
    expect(json).toMatchObject({ notary: enclave.enclave.notary, outcome: 'complete' })
    const sealed = await takeOne()
    const { hash, requestHash, responseHash, canonicalRequest, canonicalResponse } = hashCompletion(
      {
        request: JSON.parse(body) as JsonObject,
        response: JSON.parse(answer) as JsonObject,
      },
    )
    expect(sealed).toMatchObject({
      index: json.index,
      request: canonicalRequest,
      response: canonicalResponse,
      context: 'ctx',
    })
    const receipt = receiptOf(sealed)
    expect(receipt).toMatchObject({
      index: json.index,
      hash,
      request_hash: requestHash,
      response_hash: responseHash,
      forwarded_hash: sha256(body),
      received_hash: sha256(answer),
      provider: { name: 'hostile', origin: provider.origin, tls: null },
      model: { requested: 'hostile', returned: 'hostile' },
      outcome: 'complete',
    })
    expect(receipt.started_at).toBeGreaterThanOrEqual(before)
    expect(receipt.finished_at).toBeGreaterThanOrEqual(receipt.started_at)
    const publicKey = decodeHex(enclave.enclave.publicKey)
    verifyCompletionSignature({
      hash: decodeHex(hash),
      signature: decodeHex(sealed.signature),
      publicKey,
    })
  })

  it('a completion request reaches the provider as the caller wrote it, with these headers only', async () => {
    const body = `{"model":"hostile","messages":[],"x":1.50}`
    await enclave.complete(body, { credential: 'sk-abc' })
    const request = provider.requests.at(-1)
    expect(Buffer.from(request?.body ?? []).toString()).toBe(body)
    expect([request?.method, request?.target]).toEqual(['POST', '/v1/chat/completions'])
    expect(Object.fromEntries(request?.headers ?? [])).toEqual({
      accept: 'application/json',
      'accept-encoding': 'identity',
      authorization: 'Bearer sk-abc',
      connection: 'keep-alive',
      'content-length': String(body.length),
      'content-type': 'application/json',
      host: new URL(provider.origin).host,
      'user-agent': 'affidavit',
    })
  })

  it('later completions reuse the connection to the provider, and leave no listeners at it', async () => {
    const warnings: unknown[] = []
    const note = (warning: Error) => warnings.push(warning)
    process.on('warning', note)
    await enclave.complete(question)
    const connections = provider.countConnections()
    // More than the listeners of an event that Node.js warns of.
    for (let count = 0; count < EventEmitter.defaultMaxListeners + 1; count++)
      await enclave.complete(question)
    process.off('warning', note)
    expect(provider.countConnections()).toBe(connections)
    expect(warnings).toEqual([])
  })
})

describe('the receipt of a call', () => {
  const nonced = (nonce: string) => ({ ...question, affidavit: { nonce: nonce.repeat(32) } })

  it('the receipt counts how often a completion was asked for, attempts without an answer included', async () => {
    const attemptOf = async () => receiptOf(await takeOne())
    await enclave.complete(nonced('a'))
    expect(await attemptOf()).toMatchObject({
      version: 1,
      attempt: 1,
      stream_hash: null,
      encrypted: false,
    })
    await enclave.complete(nonced('b'))
    expect(await attemptOf()).toMatchObject({ attempt: 1 })
    script = () => [send('HTTP/1.1 500 No\r\ncontent-length: 0\r\n\r\n')]
    await enclave.complete(nonced('a'))
    expect(await enclave.takeAll()).toEqual([])
    script = () => [ok(completionOf('Hello'))]
    await enclave.complete(
      JSON.stringify({ affidavit: nonced('a').affidavit, user: null, ...question }),
    )
    expect(await attemptOf()).toMatchObject({ attempt: 3 })
  })

  it("the receipt has the caller's nonce in the request hash, and the provider is not sent it", async () => {
    await enclave.complete(nonced('c'))
    const forwarded = Buffer.from(provider.requests.at(-1)?.body ?? [])
    expect(JSON.parse(forwarded.toString())).toEqual(question)
    const sealed = await takeOne()
    expect(JSON.parse(sealed.request ?? '')).toEqual(nonced('c'))
    const hashes = { request_hash: sha256(sealed.request ?? ''), forwarded_hash: sha256(forwarded) }
    expect(receiptOf(sealed)).toMatchObject(hashes)
  })
})

describe('a call that cannot be made', () => {
  it.each([
    ['a body that is no JSON', '{', 422, 'invalid_request'],
    [
      'a body over 10 MiB',
      `{"model":"hostile","messages":["${'x'.repeat(10 * 2 ** 20)}"]}`,
      413,
      'invalid_request',
    ],
    ['a model of nobody', '{"model":"unknown","messages":[]}', 404, 'unsupported_model'],
    ['a model of another provider', '{"model":"closed","messages":[]}', 409, 'provider_mismatch'],
  ])(
    'a call that cannot be made is refused before the provider is asked: %s',
    async (_, body, status, code) => {
      const requests = provider.requests.length
      expect((await enclave.complete(body)).json).toMatchObject({ status, code })
      expect(provider.requests).toHaveLength(requests)
      expect(await enclave.takeAll()).toEqual([])
    },
  )

  it('a call whose credential would add a header of its own is refused', async () => {
    const { json } = await enclave.complete(question, { credential: 'a\r\nx-evil: 1' })
    expect(json).toMatchObject({ status: 400, code: 'invalid_call' })
  })

  it('a call to a provider that does not listen answers provider_unreachable', async () => {
    const { json } = await enclave.complete(
      { ...question, model: 'closed' },
      { provider: 'closed' },
    )
    expect(json).toMatchObject({ status: 502, code: 'provider_unreachable' })
    expect(json.message).toContain('ECONNREFUSED')
  })
})

describe('a provider that refuses', () => {
  it.each([400, 429])(
    "a provider's refusal with %d is relayed and leaves no record",
    async (status) => {
      const body = JSON.stringify({ error: { message: `no: ${status}`, code: 'why' } })
      script = () => [ok(body, { status, headers: { 'retry-after': '7' } })]
      for (const stream of [false, true]) {
        const answer = await enclave.complete({ ...question, stream })
        expect(answer).toMatchObject({
          status,
          json: {
            status,
            code: 'provider_refused',
            message: `The provider refused the request: no: ${status}`,
            provider_code: 'why',
            retry_after_seconds: 7,
          },
        })
      }
      expect(await enclave.takeAll()).toEqual([])
    },
  )

  const head = 'HTTP/1.1 400 No\r\ncontent-length: 100000000\r\n\r\n'
  it.each<[string, readonly Step[]]>([
    ['never ends', [send(head), { kind: 'repeat', bytes: Buffer.alloc(8192, 'x'), times: 100 }]],
    ['does not come', [send(`${head}{"error"`), { kind: 'end' }]],
  ])("a provider's refusal is relayed although its reason %s", async (_, steps) => {
    script = () => steps
    const { json } = await enclave.complete(question)
    expect(json).toMatchObject({ status: 400, code: 'provider_refused' })
  })
})

describe('the words of a provider', () => {
  it('a refusal that repeats a long request keeps its words', async () => {
    const input = 'x'.repeat(200_000)
    const detail = [{ loc: ['body', 'n'], msg: 'too large', input }]
    script = () => [ok({ detail }, { status: 422 })]
    expect((await enclave.complete(question)).json.message).toBe(
      'The provider refused the request: body.n: too large',
    )
  })

  it.each([
    ['text/html', '<html>', ': it answered with an HTML page'],
    ['text/plain', 'upstream connect error', ': upstream connect error'],
    ['text/event-stream', 'data: {"secret":1}\n\n', '.'],
  ])('a whole answer that is %s fails with its type and words', async (type, body, words) => {
    script = () => [ok(body, { headers: { 'content-type': type } })]
    expect((await enclave.complete(question)).json.message).toBe(
      `The provider answered with ${type} where JSON was asked for${words}`,
    )
  })
})

describe('an answer that is no completion', () => {
  const OK = 'HTTP/1.1 200 OK\r\n\r\n'
  const internal = '{"error":{"message":"internal"}}'
  const header = Buffer.from(`x: ${'y'.repeat(1000)}\r\n`)
  const headers = { kind: 'repeat', bytes: header, times: 1000 } as const
  const large = { kind: 'repeat', bytes: Buffer.alloc(65536, 'x'), times: 17 } as const

  it.each<[string, () => readonly Step[], string]>([
    ['a server error', () => [ok(internal, { status: 500 })], 'provider_error'],
    ['no HTTP', () => [send('SSH-2.0-OpenSSH\r\n\r\n'), { kind: 'end' }], 'provider_error'],
    ['endless headers', () => [send('HTTP/1.1 200 OK\r\n'), headers], 'provider_error'],
    ['no answer', () => [{ kind: 'stall' }], 'provider_timeout'],
    ['a slow answer', () => [send(`${OK}{"choices":"`), ...endless('x')], 'provider_timeout'],
    ['an answer over the limit', () => [send(`${OK}"`), large], 'answer_too_large'],
  ])('an answer that is no completion leaves no record: %s', async (_, steps, code) => {
    script = steps
    const status = code === 'provider_timeout' ? 504 : 502
    expect((await enclave.complete(question)).json).toMatchObject({ status, code })
    expect(await enclave.takeAll()).toEqual([])
  })

  it('a failed call says may_be_made only if the provider had the request and did not refuse it', async () => {
    const outcomeOf = async (model: string, steps: readonly Step[]) => {
      script = () => steps
      const call = model === 'closed' ? { provider: 'closed' } : {}
      const { code, may_be_made } = (await enclave.complete({ ...question, model }, call)).json
      return [code, may_be_made]
    }
    expect(await outcomeOf('hostile', [{ kind: 'stall' }])).toEqual(['provider_timeout', true])
    expect(await outcomeOf('hostile', [{ kind: 'reset' }])).toEqual(['provider_error', true])
    expect(await outcomeOf('hostile', [ok('<html>')])).toEqual(['provider_error', true])
    for (const status of [307, 500, 503])
      expect(await outcomeOf('hostile', [ok('{}', { status })])).toEqual([
        'provider_error',
        undefined,
      ])
    expect(await outcomeOf('hostile', [ok('{}', { status: 429 })])).toEqual([
      'provider_refused',
      undefined,
    ])
    expect(await outcomeOf('closed', [])).toEqual(['provider_unreachable', undefined])
  })

  it('a redirect in place of an answer is not followed', async () => {
    const elsewhere = await startHostileProvider({ answer: () => [ok(completionOf('elsewhere'))] })
    for (const status of [301, 302, 307, 308]) {
      script = () => [
        ok('', { status, headers: { location: `${elsewhere.origin}/v1/chat/completions` } }),
      ]
      expect((await enclave.complete(question)).json).toMatchObject({
        status: 502,
        code: 'provider_error',
      })
    }
    expect(elsewhere.requests).toHaveLength(0)
    await elsewhere.close()
  })
})

function* endless(text: string): Generator<Step, void> {
  for (let time = 0; time < 100; time++) {
    yield { kind: 'pause', durationMs: 50 }
    yield send(text)
  }
}

describe('a gateway that goes away', () => {
  it.each<[string, () => readonly Step[]]>([
    ['before the answer', () => [{ kind: 'stall' }]],
    ['in the middle of it', () => [send('HTTP/1.1 200 OK\r\n\r\n{"choices":'), { kind: 'stall' }]],
  ])(
    'a gateway that leaves %s ends the provider’s request at once and leaves no record',
    async (_, steps) => {
      script = steps
      const requests = provider.requests.length
      const call = enclave.open(question)
      call.on('error', () => undefined)
      await until('the provider is asked', () => provider.requests.length > requests)
      const left = performance.now()
      call.destroy()
      await provider.requests.at(-1)?.closed
      expect(performance.now() - left).toBeLessThan(AT_ONCE_MS)
      expect(await enclave.takeAll()).toEqual([])
    },
  )

  it('a call that outlives its gateway is finished after the gateway left', async () => {
    const { promise: goOn, resolve: go } = Promise.withResolvers<void>()
    script = function* () {
      yield { kind: 'wait', until: goOn }
      yield ok(completionOf('Hello'))
    }
    const { size } = (await enclave.identity()).log
    const requests = provider.requests.length
    const call = enclave.open(question, { outlives_gateway: true })
    call.on('error', () => undefined)
    await until('the provider is asked', () => provider.requests.length > requests)
    const closed = new Promise((resolve) => call.once('close', resolve))
    call.destroy()
    await closed
    go()
    await until('its record', async () => (await enclave.identity()).log.size === size + 1)
    expect(receiptOf(await takeOne()).outcome).toBe('complete')
  })
})

describe('what the enclave logs', () => {
  it("the enclave's log contains no request, answer or credential", async () => {
    script = () => [ok('{"error":{"message":"planted-answer"}}', { status: 500 })]
    await enclave.complete(
      { ...question, user: 'planted-prompt' },
      { credential: 'planted-credential' },
    )
    await enclave.complete('{"planted-prompt', { credential: 'planted-credential' })
    expect(enclave.logged.join('\n')).not.toContain('planted')
  })
})
