import http from 'node:http'
import { setTimeout as sleep } from 'node:timers/promises'
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest'
import { parseStrictJson } from '#attestation/json/parse-strict.ts'
import { parseReceipt } from '#attestation/receipt.ts'
import type { EncryptedCall } from '#enclave/protocol/enclave-api.ts'
import { AT_ONCE_MS } from '../../support/at-once.ts'
import {
  chunked,
  chunkOf,
  completionOf,
  EVENT_STREAM_HEAD,
  eventsOf,
  send,
  wholeAnswer,
} from '../../support/hostile-answers.ts'
import {
  type HostileProvider,
  type ReceivedRequest,
  type Step,
  startHostileProvider,
} from '../../support/hostile-provider.ts'
import { until } from '../../support/until.ts'
import {
  bring,
  callEncrypted,
  openEncrypted,
  proofOf,
  readEncrypted,
  sealCredential,
  sealParts,
  TX_HASH,
} from '../support/encrypted-calls.ts'
import { startTestEnclave, type TestEnclave } from '../support/test-enclave.ts'

const PROMPT = 'the merger closes on Thursday'
const SAID = 'Say nothing to anyone'
const OPERATORS = 'sk-operators-own-key-000'
const CALLERS = 'sk-callers-own-key-111'
const KEEP_ALIVE_MS = 40

let provider: HostileProvider
let enclave: TestEnclave
let script: (request: ReceivedRequest) => Iterable<Step>
let publicKey: string

const question = { model: 'hostile', messages: [{ role: 'user', content: PROMPT }] }
const whole = JSON.stringify(question)
const streamed = JSON.stringify({ ...question, stream: true })
const ok = (body: object, more = {}) => [send(wholeAnswer({ body: JSON.stringify(body), ...more }))]
const events = (...values: readonly unknown[]) => send(chunked(eventsOf(values)))
const CHUNKS = [chunkOf({ role: 'assistant', content: SAID }), chunkOf({}, 'stop'), '[DONE]']

const hostile = () => ({
  name: 'hostile',
  origin: provider.origin,
  path: '/v1',
  models: ['hostile'],
})

beforeAll(async () => {
  provider = await startHostileProvider({ answer: (request) => script(request) })
  enclave = await startTestEnclave({
    providers: [
      hostile(),
      { name: 'closed', origin: 'https://127.0.0.1:1', path: '/', models: ['closed'] },
    ],
    limits: {
      firstByteTimeoutMs: 1_500,
      idleTimeoutMs: 1_500,
      answerTimeoutMs: 3_000,
      drainTimeoutMs: 300,
    },
    waits: { keepAliveMs: KEEP_ALIVE_MS, proofMs: 2_000 },
  })
  publicKey = (await enclave.identity()).encryption_keys?.[0]?.public_key ?? ''
})

afterAll(async () => {
  await enclave.stop()
  await provider.close()
})

let asked = 0
let sizeBefore = 0
beforeEach(async () => {
  script = () => ok(completionOf(SAID))
  await enclave.takeAll()
  asked = provider.requests.length
  sizeBefore = (await enclave.identity()).log.size
})

/** Nothing that only the caller may read is ever seen outside. */
afterEach(() => {
  const logged = enclave.logged.join('\n')
  for (const secret of [PROMPT, SAID, OPERATORS, CALLERS]) expect(logged).not.toContain(secret)
})

const askedSince = () => provider.requests.length - asked
const gateway = (call: Partial<EncryptedCall> = {}) => ({ socketPath: enclave.socketPath, call })

/** The response to a request, whose connection may break. */
async function responseTo(request: http.ClientRequest): Promise<http.IncomingMessage> {
  const response = await new Promise<http.IncomingMessage>((resolve) => {
    request.once('response', resolve)
  })
  return response.on('error', () => undefined)
}

/** A call that is sealed and waits for its proof: its id, and the answer to come. */
async function callWithoutProof(body: string, socketPath = enclave.socketPath, key = publicKey) {
  let call = ''
  const proof = (id: string) => {
    call = id
    return null
  }
  const answering = callEncrypted({ socketPath, proof }, await sealParts(key, [body]))
  answering.catch(() => undefined)
  await until('the call is sealed', () => call !== '')
  return { call, answering }
}

async function ask(body: string, call: Partial<EncryptedCall> = {}, credential?: string) {
  const answer = await callEncrypted(gateway(call), await sealParts(publicKey, [body], credential))
  for (const secret of [PROMPT, SAID, OPERATORS, CALLERS])
    expect(answer.seen.includes(secret)).toBe(false)
  return answer
}

describe('an encrypted completion', () => {
  it('an encrypted completion is sealed and answered with its proof; its record has no content', async () => {
    const { head, sealed, fault, text } = await ask(whole)
    expect(head).toEqual({
      status: 200,
      content_type: 'application/json',
      retry_after_seconds: null,
      should_retry: true,
    })
    expect(fault).toBeNull()
    const given = JSON.parse(text)
    expect(given.choices[0].message.content).toBe(SAID)
    expect(given).toMatchObject({ tx_hash: TX_HASH, log: proofOf('').log })
    const receipt = parseReceipt(parseStrictJson(Buffer.from(JSON.stringify(given.receipt))))
    expect(receipt).toMatchObject({ encrypted: true, outcome: 'complete', hash: given.hash })
    expect(sealed).toMatchObject({
      notary: enclave.enclave.notary,
      outcome: 'complete',
      model: 'hostile',
      usage: { prompt_tokens: 1, completion_tokens: 1, total_tokens: 2 },
    })
    const [record] = await enclave.takeAll()
    expect(record).toMatchObject({ request: null, response: null, signature: given.signature })
    expect(Buffer.from(provider.requests.at(-1)?.body ?? '').toString()).toBe(whole)
  })

  it.each([
    [{}, null],
    [{ max_tokens: 51 }, null],
    [{ max_tokens: 26, n: 2 }, null],
    [{ max_tokens: 5, max_completion_tokens: 51 }, null],
    [{ max_tokens: 5, max_completion_tokens: '5' }, null],
    [{ max_output_tokens: 5 }, null],
    [{ max_tokens: 50 }, 200],
    [{ max_completion_tokens: 25, n: 2 }, 200],
  ])('an encrypted request with %j is held to 50 tokens: %j', async (more, status) => {
    const body = JSON.stringify({ ...JSON.parse(whole), ...more })
    const { head, fault, text } = await ask(body, { answer_tokens_max: 50 })
    expect(head?.status).toBe(status ?? 422)
    if (status !== null) return
    expect(fault).toMatchObject({ code: 'invalid_request' })
    expect(text).toContain('expected at most 50 tokens for all answers')
    expect(askedSince()).toBe(0)
  })

  it('an encrypted completion is streamed, and the last chunk has the proof', async () => {
    script = () => [send(EVENT_STREAM_HEAD), events(...CHUNKS), send(chunked(''))]
    const { head, text, sealed } = await ask(streamed)
    expect(head).toMatchObject({ status: 200, content_type: 'text/event-stream; charset=utf-8' })
    const given = text.split('\n\n').filter((event) => event.startsWith('data: '))
    expect(given.at(-1)).toBe('data: [DONE]')
    expect(JSON.parse(given.at(-2)?.slice(6) ?? '')).toMatchObject({
      tx_hash: TX_HASH,
      receipt: { encrypted: true },
      choices: [{ finish_reason: 'stop' }],
    })
    expect(sealed?.outcome).toBe('complete')
  })

  it('an encrypted completion comes in any number of frames, and goes out in frames of 64 KiB', async () => {
    script = () => ok(completionOf(SAID.repeat(8_000)))
    const parts = ['', ...whole, '', '']
    const answer = await callEncrypted(gateway(), await sealParts(publicKey, parts))
    expect(JSON.parse(answer.text).choices[0].message.content).toHaveLength(SAID.length * 8_000)
    expect(Math.max(...answer.lengths)).toBe(64 * 1024)
  })

  it('an encrypted call is kept open by comments while the provider thinks, and until its proof comes', async () => {
    script = () => [
      send(EVENT_STREAM_HEAD),
      { kind: 'pause' as const, durationMs: 200 },
      events(...CHUNKS),
      send(chunked('')),
    ]
    const { call, answering } = await callWithoutProof(streamed)
    await sleep(5 * KEEP_ALIVE_MS)
    expect(await bring(enclave.socketPath, proofOf(call))).toBe(200)
    const { text } = await answering
    const [before = '', after = ''] = text.split(SAID)
    expect(before.split(': ping').length).toBeGreaterThan(2)
    expect(after.split(': ping').length).toBeGreaterThan(2)
    expect(text.endsWith('data: [DONE]\n\n')).toBe(true)
  })

  it('a pull with the proofs of its commit ends the answers of these calls, and of no others', async () => {
    const waiting = await Promise.all([1, 2, 3].map(() => callWithoutProof(whole)))
    const [first, second, other] = waiting
    const sealed = (await enclave.pull({ from: sizeBefore })).completions
    expect(sealed.map(({ call, index }) => [call, index])).toEqual(
      sealed.map(({ index }) => [String(index), index]),
    )
    const proofs = [first, second].map((waits) => proofOf(waits?.call ?? ''))
    await expect(
      enclave.pull({ from: sizeBefore + 3, proofs: [{ ...proofOf('1'), tx_hash: '0x' }] }),
    ).rejects.toThrow('400')
    expect((await enclave.identity()).log.acknowledged).toBe(sizeBefore)
    await enclave.pull({ from: sizeBefore + 3, proofs })
    for (const waits of [first, second]) expect((await waits?.answering)?.text).toContain(TX_HASH)
    expect(await bring(enclave.socketPath, proofOf(first?.call ?? ''))).toBe(404)
    // A pull that comes again gives nothing twice, and the third has its proof by itself.
    await enclave.pull({ from: sizeBefore + 3, proofs })
    expect(await bring(enclave.socketPath, proofOf(other?.call ?? ''))).toBe(200)
    expect((await other?.answering)?.text).toContain(TX_HASH)
  })
})

describe('its errors', () => {
  it('errors are plain before the call is opened, encrypted after it, with the status of plain calls', async () => {
    const other = await sealParts((await sealParts(publicKey, [])).enc, [whole])
    expect(await callEncrypted(gateway(), other)).toMatchObject({
      status: 422,
      plain: { code: 'unknown_key' },
      head: null,
    })
    const bad = await ask(JSON.stringify({ ...question, temperature: 3, n: 0 }))
    expect(bad).toMatchObject({ status: 200, head: { status: 422 }, fault: { model: null } })
    expect(JSON.parse(bad.text)).toMatchObject({
      detail: [{ loc: ['body', 'n'] }, { loc: ['body', 'temperature'] }],
      error: { message: expect.stringContaining('(and 1 more'), code: 'validation_failed' },
    })
    const nonce = await ask(JSON.stringify({ ...question, affidavit: { nonce: 'x' } }))
    expect(JSON.parse(nonce.text).detail[0].loc).toEqual(['body', 'affidavit'])
    const unknown = await ask(JSON.stringify({ ...question, model: 'nobody' }))
    expect(unknown).toMatchObject({ head: { status: 404 }, fault: { code: 'unsupported_model' } })
    const closed = await ask(JSON.stringify({ ...question, model: 'closed' }))
    expect(closed.head?.status).toBe(403)
    expect(JSON.parse(closed.text).error.code).toBe('provider_credential_missing')
    expect(askedSince()).toBe(0)
    expect(await enclave.takeAll()).toEqual([])
  })

  it('encrypted errors repeat the words of a provider, but never the key of the operator', async () => {
    script = ({ headers }) =>
      ok(
        { error: { message: `bad key ${headers.get('authorization')}`, code: OPERATORS } },
        { status: 400, headers: { 'retry-after': '7' } },
      )
    const answer = await ask(whole, { credentials: { hostile: OPERATORS } })
    expect(answer.head).toMatchObject({ status: 400, retry_after_seconds: 7 })
    expect(JSON.parse(answer.text).error).toMatchObject({
      code: 'provider_refused',
      provider_code: '[credential]',
      message: 'The provider refused the request: bad key Bearer [credential]',
    })
    const own = await ask(whole, { credentials: { hostile: OPERATORS } }, CALLERS)
    expect(JSON.parse(own.text).error.message).toBe(
      `The provider refused the request: bad key Bearer ${CALLERS}`,
    )
  })

  it("an operator's bad key is told to the caller as a fault of the service, not of the caller's key", async () => {
    script = () => ok({ error: { message: 'no' } }, { status: 401 })
    const operators = await ask(whole, { credentials: { hostile: OPERATORS } })
    expect(operators.head).toMatchObject({ status: 502, should_retry: false })
    expect(JSON.parse(operators.text).error.code).toBe('provider_credential_rejected')
    expect((await ask(whole, {}, CALLERS)).head?.status).toBe(401)
  })

  it('errors within an encrypted stream are events, without the key of the operator', async () => {
    script = ({ headers }) => [
      send(EVENT_STREAM_HEAD),
      events(CHUNKS[0], { error: { message: `key ${headers.get('authorization')} ended` } }),
    ]
    const { head, text, fault, sealed } = await ask(streamed, {
      credentials: { hostile: OPERATORS },
    })
    expect(head?.status).toBe(200)
    expect(text).toContain('event: error\ndata: ')
    expect(text).toContain('key Bearer [credential] ended')
    expect(text).not.toContain(OPERATORS)
    expect(text).not.toContain('[DONE]')
    expect(fault).toMatchObject({ code: 'provider_error' })
    expect(sealed).toMatchObject({ outcome: 'upstream_error', call: '' })
  })
})

describe('attacks on a call: refused, and no provider is asked', () => {
  const refused = async (
    calling: ReturnType<typeof callEncrypted>,
    expected: { readonly status: number; readonly code: string },
  ) => {
    const { status, plain } = await calling
    expect({ status, code: plain.code }).toEqual(expected)
    expect(askedSince()).toBe(0)
    expect(await enclave.takeAll()).toEqual([])
  }
  const BAD = { status: 400, code: 'bad_ciphertext' }
  const UNKNOWN = { status: 422, code: 'unknown_key' }
  const parts = () => [whole.slice(0, 20), whole.slice(20, 40), whole.slice(40)]

  it.each([
    ['without its first frame', [1, 2], UNKNOWN],
    ['with its first frame twice', [0, 0, 1, 2], BAD],
    ['without any frame', [], BAD],
  ])('a call %s is refused, and no provider is asked', async (_, order, expected) => {
    const call = await sealParts(publicKey, parts())
    const wire = Buffer.concat(order.map((index) => call.frames[index] ?? Buffer.alloc(0)))
    await refused(callEncrypted(gateway(), call, wire), expected)
  })

  it('a call that ends early, in its last frame or before it, is refused, and no provider is asked', async () => {
    const call = await sealParts(publicKey, parts())
    const wire = Buffer.concat(call.frames)
    const last = call.frames.at(-1)?.length ?? 0
    for (const cut of [1, 5, last - 4, last - 1]) {
      const again = await sealParts(publicKey, parts())
      const short = Buffer.concat(again.frames).subarray(0, wire.length - cut)
      await refused(callEncrypted(gateway(), again, short), BAD)
    }
    // A cut between frames shows only in the JSON, which is not whole: the refusal is encrypted.
    const { head, text } = await callEncrypted(
      gateway(),
      call,
      wire.subarray(0, wire.length - last),
    )
    expect(head?.status).toBe(422)
    expect(JSON.parse(text).detail[0].type).toBe('json_invalid')
    expect(askedSince()).toBe(0)
  })

  it("a call with another call's encapsulated key, of small order, or with a bit more is refused", async () => {
    const [one, two] = [await sealParts(publicKey, parts()), await sealParts(publicKey, parts())]
    await refused(callEncrypted(gateway(), { ...one, enc: two.enc }), UNKNOWN)
    await refused(callEncrypted(gateway(), { ...one, enc: '00'.repeat(32) }), UNKNOWN)
    const bit = Buffer.from(one.enc, 'hex')
    bit[31] = (bit[31] ?? 0) ^ 0x80
    await refused(callEncrypted(gateway(), { ...one, enc: bit.toString('hex') }), UNKNOWN)
  })

  it('a credential of another call, of small order, too short or invalid is refused', async () => {
    const other = await sealParts(publicKey, [whole], CALLERS)
    const lines = async (credential: string) => {
      const call = await sealParts(publicKey, [whole])
      return {
        ...call,
        credential: await sealCredential(publicKey, { credential, to: call.enc }),
      }
    }
    const fresh = () => sealParts(publicKey, [whole])
    for (const call of [
      { ...(await fresh()), credential: other.credential },
      { ...(await fresh()), credential: Buffer.alloc(100).toString('base64url') },
      { ...(await fresh()), credential: 'AAAA' },
      await lines('sk-1\r\nx-injected: 1'),
      await lines('sk é'),
      await lines(''),
    ])
      await refused(callEncrypted(gateway(), call), BAD)
  })

  it('a call made before, or twice at once, is refused, also when the first was refused', async () => {
    const call = await sealParts(publicKey, [whole])
    const answers = await Promise.all([1, 2, 3, 4].map(() => callEncrypted(gateway(), call)))
    expect(answers.map(({ status }) => status).toSorted()).toEqual([200, 409, 409, 409])
    const again = await callEncrypted(gateway(), call)
    expect(again).toMatchObject({ status: 409, plain: { code: 'replayed_call' } })
    expect(askedSince()).toBe(1)
    await enclave.takeAll()
    const cut = await sealParts(publicKey, [whole, ' '])
    expect((await callEncrypted(gateway(), cut, cut.frames[0])).status).toBe(200)
    expect((await callEncrypted(gateway(), cut)).status).toBe(409)
    expect(askedSince()).toBe(2)
  })

  it('frames that claim 4 GiB, exceed a request, or are empty without end are refused', async () => {
    const call = await sealParts(publicKey, [whole])
    await refused(callEncrypted(gateway(), call, Buffer.alloc(8, 0xff)), BAD)
    await refused(callEncrypted(gateway(), call, Buffer.from('00a0001100', 'hex')), BAD)
    const empty = Buffer.alloc(11 * 2 ** 20 + 4)
    await refused(callEncrypted(gateway(), call, empty), { status: 413, code: 'invalid_request' })
  })

  it('a sender of a long body for another key is told before it has sent all', async () => {
    const call = await sealParts((await sealParts(publicKey, [])).enc, ['x', 'y'.repeat(2 ** 20)])
    const agent = new http.Agent({ keepAlive: true })
    const request = openEncrypted({ ...gateway(), agent }, call)
    request.on('error', () => undefined)
    request.write(call.frames[0])
    expect(await readEncrypted(gateway(), call, request)).toMatchObject({
      status: 422,
      plain: { code: 'unknown_key' },
    })
    // The rest is read and dropped, and the connection is used again.
    await new Promise<void>((resolve) => request.end(call.frames[1], () => resolve()))
    const next = await sealParts(publicKey, [whole])
    const again = openEncrypted({ ...gateway(), agent }, next)
    again.end(next.frames[0])
    expect((await readEncrypted(gateway(), next, again)).head?.status).toBe(200)
    expect(again.reusedSocket).toBe(true)
    agent.destroy()
    expect(askedSince()).toBe(1)
  })

  it('headers of the gateway that do not form a call are refused', async () => {
    const call = await sealParts(publicKey, [whole])
    const wrong: readonly Partial<Record<keyof EncryptedCall, unknown>>[] = [
      { encapsulated_key: call.enc.toUpperCase() },
      { encapsulated_key: `${call.enc}00` },
      { credentials: { hostile: 'sk\r\nx: y' } },
      { credentials: [] },
      { sealed_credential: 'a'.repeat(6_000) },
      { sealed_credential: 'a b' },
      { context: 'x'.repeat(5_000) },
      { answer_tokens_max: '5' },
      { answer_tokens_max: -1 },
    ]
    for (const more of wrong)
      await refused(callEncrypted(gateway(more as Partial<EncryptedCall>), call), {
        status: 400,
        code: 'invalid_call',
      })
  })
})

describe('a gateway that leaves', () => {
  async function begin(body: string, rest: readonly string[] = []) {
    const call = await sealParts(publicKey, [body, ...rest])
    const request = openEncrypted(gateway(), call)
    request.on('error', () => undefined)
    await new Promise((resolve) => request.write(call.frames[0], resolve))
    return { call, request }
  }

  it('a gateway that leaves within the body leaves no call, and no other call may have its key', async () => {
    const { call, request } = await begin(whole, [' '])
    request.destroy()
    expect(await callEncrypted(gateway(), call)).toMatchObject({ status: 409 })
    expect(askedSince()).toBe(0)
  })

  it('a gateway that leaves while a proof is awaited ends the waiting, and the record stays', async () => {
    const { call, request } = await begin(whole)
    request.end()
    let id = ''
    const proof = (sealed: string) => {
      id = sealed
      request.destroy()
      return null
    }
    await expect(readEncrypted({ ...gateway(), proof }, call, request)).rejects.toThrow()
    const gone = async () => (await bring(enclave.socketPath, proofOf(id))) === 404
    await until('nobody waits', gone, 1_000)
    expect(await enclave.takeAll()).toHaveLength(1)
  })

  it('a gateway that does not read ends the call; its record says so, and nothing looks whole', async () => {
    const chunk = chunkOf({ role: 'assistant', content: 'x'.repeat(60_000) })
    const rest = chunkOf({ content: 'y'.repeat(60_000) })
    script = () => [
      send(EVENT_STREAM_HEAD),
      events(chunk),
      { kind: 'repeat', bytes: chunked(eventsOf([rest])), times: 60 },
      events(chunkOf({}, 'stop'), '[DONE]'),
      send(chunked('')),
    ]
    const call = await sealParts(publicKey, [streamed])
    const request = openEncrypted(gateway(), call)
    request.end(call.frames[0])
    const response = await responseTo(request)
    // The connection may break before anything is read.
    const ended = new Promise<string>((resolve) => {
      response.once('aborted', () => resolve('cut'))
      response.once('end', () => resolve('whole'))
    })
    await until('it is sealed', async () => (await enclave.identity()).log.size > sizeBefore)
    const [record] = await enclave.takeAll()
    expect(JSON.parse(record?.receipt ?? '')).toMatchObject({ outcome: 'client_disconnected' })
    response.resume()
    expect(await ended).toBe('cut')
  })
})

describe('an enclave that stops', () => {
  it('an enclave that stops finishes encrypted calls that wait for their proof, and takes no new ones', async () => {
    const own = await startTestEnclave({ providers: [hostile()] })
    const key = (await own.identity()).encryption_keys?.[0]?.public_key ?? ''
    const { call, answering } = await callWithoutProof(whole, own.socketPath, key)
    const stopping = own.enclave.stop(5_000)
    const refused = await callEncrypted(
      { socketPath: own.socketPath },
      await sealParts(key, [whole]),
    )
    expect(refused).toMatchObject({ status: 503, plain: { code: 'not_ready' } })
    await own.takeAll()
    expect(await bring(own.socketPath, proofOf(call))).toBe(200)
    expect((await answering).head?.status).toBe(200)
    expect(await stopping).toEqual({ unacknowledged: 0 })
    await own.stop()
  })

  it('an enclave that stops is not held up by calls whose gateway left, or takes no answer', async () => {
    const limits = { drainTimeoutMs: 300 }
    const own = await startTestEnclave({ providers: [hostile()], limits })
    const key = (await own.identity()).encryption_keys?.[0]?.public_key ?? ''
    script = ({ body }) =>
      Buffer.from(body).includes('"stream":true')
        ? [send(EVENT_STREAM_HEAD), events(CHUNKS[0]), { kind: 'stall' }]
        : ok(completionOf(SAID.repeat(100_000)))
    const calling = async (body: string) => {
      const call = await sealParts(key, [body])
      const request = openEncrypted({ socketPath: own.socketPath }, call)
      request.on('error', () => undefined)
      request.end(call.frames[0])
      const response = await responseTo(request)
      const first = await new Promise<Buffer>((resolve) => response.once('data', resolve))
      response.pause()
      return { request, first }
    }
    const left = await calling(streamed)
    const unread = await calling(whole)
    left.request.destroy()
    const { call } = JSON.parse(
      unread.first.subarray(5, 5 + unread.first.readUInt32BE(1)).toString(),
    )
    expect(await bring(own.socketPath, proofOf(call))).toBe(200)
    await until('both are sealed', async () => (await own.identity()).log.size === 2)
    await own.takeAll()
    const begun = performance.now()
    expect(await own.enclave.stop(10_000)).toEqual({ unacknowledged: 0 })
    const took = performance.now() - begun
    expect(took).toBeLessThan(AT_ONCE_MS)
    unread.request.destroy()
    await own.stop()
  })
})
