import { createHash } from 'node:crypto'
import { once } from 'node:events'
import type { AddressInfo } from 'node:net'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { DEMANDS_HEADER } from '#attestation/dialects/call-request.ts'
import { EventParser } from '#attestation/dialects/chat/event-parser.ts'
import type { DialectEvent } from '#attestation/dialects/dialect.ts'
import { DIALECT_HEADERS } from '#attestation/dialects/dialect-names.ts'
import { DIALECTS, EVENT_DIALECTS } from '#attestation/dialects/dialects.ts'
import { parseStrictJson } from '#attestation/json/parse-strict.ts'
import type { Json, JsonObject } from '#attestation/json/value.ts'
import { parseReceipt, type ReceiptV3 } from '#attestation/receipt.ts'
import { type RecordCheckName, verifyRecord } from '#attestation/verify-record.ts'
import type { SealedCompletion } from '#enclave/protocol/enclave-api.ts'
import { createDemoServer } from '#src/local/demo/server.ts'
import { startTestEnclave, type TestEnclave } from '../support/test-enclave.ts'

const server = createDemoServer({ delayMs: 0, now: () => 1_800_000_000_500 })
const received: { readonly headers: Readonly<Record<string, unknown>>; readonly body: string }[] =
  []
let enclave: TestEnclave

beforeAll(async () => {
  server.on('request', (request) => {
    const parts: Buffer[] = []
    request.on('data', (part) => parts.push(part))
    request.on('end', () =>
      received.push({ headers: request.headers, body: Buffer.concat(parts).toString() }),
    )
  })
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  const origin = `http://127.0.0.1:${(server.address() as AddressInfo).port}`
  enclave = await startTestEnclave({
    providers: [
      {
        name: 'demo',
        origin,
        path: '/v1/chat/completions',
        models: ['demo/*'],
        endpoints: {
          responses: { path: '/v1/responses' },
          messages: { path: '/v1/messages', credential: 'x-api-key' },
        },
      },
      { name: 'chat-only', origin, path: '/v1/chat/completions', models: ['chat/*'] },
    ],
  })
})
afterAll(async () => {
  await enclave.stop()
  server.close()
  server.closeAllConnections()
})

const bodies = {
  responses: { model: 'demo/echo', input: 'Hello', store: null },
  messages: {
    model: 'demo/echo',
    max_tokens: 100,
    messages: [{ role: 'user', content: 'Hello' }],
  },
} as const

/** The checks that a stored record of this completion passes or fails. */
function judge(sealed: SealedCompletion, changed: JsonObject = {}) {
  const record = {
    request: JSON.parse(sealed.request ?? 'null'),
    response: JSON.parse(sealed.response ?? 'null'),
    receipt: JSON.parse(sealed.receipt),
    hash: JSON.parse(sealed.receipt).hash,
    signature: sealed.signature,
    public_key: enclave.enclave.publicKey,
    ...changed,
  }
  const { checks } = verifyRecord(record as Json)
  return (name: RecordCheckName) => checks.find((check) => check.name === name)
}

function receiptOf({ receipt }: SealedCompletion): ReceiptV3 {
  return parseReceipt(parseStrictJson(Buffer.from(receipt))) as ReceiptV3
}

for (const name of ['responses', 'messages'] as const)
  describe(`a call of ${name}`, () => {
    const dialect = EVENT_DIALECTS[name]
    const hashedHeader = DIALECT_HEADERS[name][0] ?? ''

    it(`a whole answer of ${name} is sealed as a record whose parts verify`, async () => {
      const headers = { [hashedHeader]: 'one, two', accept: 'text/plain' }
      const { status } = await enclave.complete(bodies[name], { headers }, name)
      expect(status).toBe(200)
      const [sealed] = await enclave.takeAll()
      if (sealed === undefined) throw new Error('expected a completion')
      const receipt = receiptOf(sealed)
      expect(receipt).toMatchObject({
        dialect: name,
        headers: { [hashedHeader]: 'one, two' },
        stream_hash: null,
        outcome: 'complete',
        model: { requested: 'demo/echo' },
      })
      expect(JSON.parse(sealed.request ?? '')).toEqual({
        dialect: name,
        headers: { [hashedHeader]: 'one, two' },
        body: bodies[name],
      })
      const check = judge(sealed)
      for (const part of ['request hash', 'response hash', 'hash', 'signature'] as const)
        expect(check(part)).toMatchObject({ outcome: 'passed' })
      const last = received.at(-1)
      expect(last?.headers).toMatchObject({
        [hashedHeader]: 'one, two',
        accept: 'application/json',
      })
      expect(last?.headers[name === 'messages' ? 'x-api-key' : 'authorization']).toBe(
        name === 'messages' ? 'sk-test' : 'Bearer sk-test',
      )
      const digest = createHash('sha256')
        .update(last?.body ?? '')
        .digest('hex')
      expect(receipt.forwarded_hash).toBe(digest)
    })

    it(`a stream of ${name} is given out as named events whose hash is sealed`, async () => {
      const { status, text } = await enclave.complete({ ...bodies[name], stream: true }, {}, name)
      expect(status).toBe(200)
      const events = new EventParser().push(Buffer.from(text))
      const [sealed] = await enclave.takeAll()
      if (sealed === undefined) throw new Error('expected a completion')
      expect(events.at(-1)?.event).toBe('sealed')
      expect(events.at(-2)?.event).toBe('last')
      const ended = dialect.endStream(events.at(-2)?.data ?? '', proofOf(sealed))
      const kept = [...events.slice(0, -2), ...new EventParser().push(Buffer.from(ended))].map(
        ({ event, data }): DialectEvent => ({ event, data: JSON.parse(data) }),
      )
      const request = JSON.parse(sealed.request ?? '')
      const verify = (given: readonly DialectEvent[]) => {
        const { checks } = verifyRecord(null, { request, events: given })
        return (check: RecordCheckName) => checks.find((found) => found.name === check)?.outcome
      }
      const whole = verify(kept)
      for (const part of [
        'request hash',
        'response hash',
        'stream hash',
        'hash',
        'signature',
      ] as const)
        expect(whole(part)).toBe('passed')
      expect(verify(kept.slice(1))('stream hash')).toBe('failed')
      expect(verify(kept.slice(0, -1))('stream hash')).toBe('failed')
      expect(verify([...kept, ...kept])('stream hash')).toBe('failed')
    })

    it(`demands of ${name} come in the header or in the body, and are not forwarded`, async () => {
      const nonce = 'ab'.repeat(16)
      const header = Buffer.from(JSON.stringify({ nonce })).toString('base64url')
      const headers = { [DEMANDS_HEADER]: header, [hashedHeader]: 'outer' }
      await enclave.complete(bodies[name], { headers }, name)
      expect(received.at(-1)?.headers[DEMANDS_HEADER]).toBeUndefined()
      const inner = { nonce, headers: { [hashedHeader]: 'inner' } }
      await enclave.complete(
        { ...bodies[name], affidavit: inner },
        { headers: { [hashedHeader]: 'outer' } },
        name,
      )
      expect(received.at(-1)?.headers[hashedHeader]).toBe('inner')
      expect(JSON.parse(received.at(-1)?.body ?? '')).toEqual(bodies[name])
      const sealed = await enclave.takeAll()
      expect(sealed.map((each) => receiptOf(each).headers[hashedHeader])).toEqual([
        'outer',
        'inner',
      ])
      expect(
        sealed.map((each) => DIALECTS[name].demandsOf(JSON.parse(each.request ?? '')).nonce),
      ).toEqual([nonce, nonce])
      for (const each of sealed) expect(judge(each)('request hash')?.outcome).toBe('passed')
      const both = await enclave.complete(
        { ...bodies[name], affidavit: { nonce } },
        { headers },
        name,
      )
      expect(both).toMatchObject({ status: 422, json: { code: 'invalid_request' } })
    })

    it.each(['x-other', hashedHeader.toUpperCase(), DEMANDS_HEADER])(
      `a demanded header %s that ${name} does not have is refused by its name`,
      async (unknown) => {
        const asked = received.length
        const affidavit = { headers: { [hashedHeader]: 'inner', [unknown]: 'x' } }
        const { status, json } = await enclave.complete({ ...bodies[name], affidavit }, {}, name)
        expect([status, json.code, json.loc]).toEqual([
          422,
          'invalid_request',
          ['body', 'affidavit'],
        ])
        expect(json.message).toContain(`without ${unknown}`)
        expect(received.length).toBe(asked)
      },
    )

    it(`a model that no provider serves as ${name} is refused with the dialect that works`, async () => {
      const { status, json } = await enclave.complete(
        { ...bodies[name], model: 'chat/x' },
        {},
        name,
      )
      expect(status).toBe(404)
      expect(json.message).toBe(`No provider serves this model as ${name}. One serves it as chat.`)
    })
  })

it('a member that hides the prompt is refused by its name', async () => {
  const hidden = { ...bodies.responses, previous_response_id: 'resp_1' }
  const { status, json } = await enclave.complete(hidden, {}, 'responses')
  expect(status).toBe(422)
  expect(json).toMatchObject({ code: 'invalid_request', loc: ['body', 'previous_response_id'] })
  const chat = { model: 'demo/echo', messages: [], previous_response_id: 'resp_1' }
  expect((await enclave.complete(chat)).status).not.toBe(422)
})

/** A proof's members as text, as the gateway writes them. */
function proofOf(sealed: SealedCompletion): string {
  const { hash } = JSON.parse(sealed.receipt)
  const names = { hash, public_key: enclave.enclave.publicKey, signature: sealed.signature }
  return `${JSON.stringify(names).slice(1, -1)},"receipt":${sealed.receipt}`
}
