import { createHash } from 'node:crypto'
import { once } from 'node:events'
import type { AddressInfo } from 'node:net'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { DEMANDS_HEADER } from '#attestation/dialects/call-request.ts'
import { DIALECT_HEADERS } from '#attestation/dialects/dialect-names.ts'
import { DIALECTS } from '#attestation/dialects/dialects.ts'
import { parseStrictJson } from '#attestation/json/parse-strict.ts'
import type { Json, JsonObject } from '#attestation/json/value.ts'
import { parseReceipt, type Receipt } from '#attestation/receipt.ts'
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

function receiptOf({ receipt }: SealedCompletion): Receipt {
  return parseReceipt(parseStrictJson(Buffer.from(receipt))) as Receipt
}

for (const name of ['responses', 'messages'] as const)
  describe(`a call of ${name}`, () => {
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
  })
