import { beforeEach, describe, expect, it } from 'vitest'
import { decodeHex } from '#attestation/bytes.ts'
import type { Json, JsonObject } from '#attestation/json/value.ts'
import { treeHeadDigest } from '#attestation/tree-head.ts'
import { AffidavitError, type AffidavitErrorCode } from '#client/errors.ts'
import { NOTARY } from '../attestation/build-record.ts'
import { CHUNKS, chunkOf } from '../attestation/kept-streams.ts'
import { buildChain, MADE_AT } from '../support/nitro-builder/development-pki.ts'
import type { Fields } from '../support/nitro-builder/document-builder.ts'
import { ADDRESS, type Attack, type MemoryClient, openMemoryClient } from './memory-gateway.ts'

const HOUR_MS = 3_600_000
const REQUEST = { model: 'demo/echo', messages: [{ role: 'user', content: 'Pay?' }] }
const SAID = 'Transfer nothing.'
const otherAnswer = {
  id: 'c9',
  object: 'chat.completion',
  created: 7,
  model: 'demo/echo',
  choices: [
    {
      index: 0,
      finish_reason: 'stop',
      logprobs: null,
      message: { role: 'assistant', content: 'Transfer it all.' },
    },
  ],
}

let client: MemoryClient
beforeEach(() => {
  client = openMemoryClient()
})

/** What a caller reads of an answer, or the code that it is refused with. */
async function ask(body: object = REQUEST, headers: Readonly<Record<string, string>> = {}) {
  const init = { method: 'POST', headers, body: JSON.stringify(body) }
  const response = await client.fetch(client.url, init)
  return await response.text().then(
    (text) => ({ text, code: 'given' }),
    (fault) => ({ text: '', code: fault instanceof AffidavitError ? fault.code : String(fault) }),
  )
}
const pcrsOf = (value: number) =>
  new Map(Array.from({ length: 16 }, (_, index) => [index, Buffer.alloc(48, value)]))
const codeOf = async (body?: object) => (await ask(body)).code
const content = (answer: JsonObject): string => (JSON.stringify(answer).includes(SAID) ? SAID : '')

/** The answer has other members. */
const changed = (members: JsonObject): Attack => ({
  answer: (answer) => ({ ...answer, ...members }),
})
/** The part of the answer has other members. */
const changedIn = (part: 'log' | 'receipt', members: JsonObject): Attack => ({
  answer: (answer) => ({ ...answer, [part]: { ...(answer[part] as JsonObject), ...members } }),
})
const sentAs = (type: string): Attack => ({
  respond: (text) => new Response(text, { headers: { 'content-type': type } }),
})
const NO_SIGNATURE = `0x${'11'.repeat(64)}1b`

/** The log with other members of its domain, and the notary's signature for them. */
function signedFor(log: Json | undefined, changed: JsonObject): JsonObject {
  const other = { ...(log as JsonObject), ...changed }
  const domain = { chainId: Number(other.chain_id), contract: String(other.contract) }
  const head = { size: Number(other.size), root: decodeHex(String(other.root)) }
  const { serialized } = NOTARY.signingKey.sign(treeHeadDigest(domain, head))
  return { ...other, signature: serialized }
}

describe('an honest gateway', () => {
  it('an honest gateway gives an answer with its proof, whole and as a stream', async () => {
    const whole = await ask()
    expect(content(JSON.parse(whole.text))).toBe(SAID)
    const stream = await ask({ ...REQUEST, stream: true })
    expect(stream.text.endsWith('data: [DONE]\n\n')).toBe(true)
    expect([...client.proofs].map(({ notary }) => notary)).toEqual([ADDRESS, ADDRESS])
  })

  it('the client asks a gateway for a document once, and again before the document ends', async () => {
    const documents = () => client.asked.filter((path) => path === '/v1/attestation').length
    for (let call = 0; call < 3; call += 1) await ask()
    expect(documents()).toBe(1)
    client.nowMs += 2.6 * HOUR_MS
    client.attack = { fields: { timestamp: client.nowMs } }
    await ask()
    await expect.poll(documents).toBe(2)
  })
})

describe('a notary is refused', () => {
  const wrongRoot = buildChain({ level: 0, parts: { serial: new Uint8Array([2, 1, 9]) } })
  const widened = {
    chain_id: 31337,
    contract: `0x${'c0'.repeat(20)}`,
    providers: [
      { name: 'demo', origin: 'https://provider.example' },
      { name: 'demo', origin: 'https://operator.example' },
    ],
  }

  const tooOld = MADE_AT.getTime() - 4 * HOUR_MS
  const withField = (fields: Fields): Attack => ({ fields })
  it.each<[string, Attack, AffidavitErrorCode]>([
    ['whose document is under another root', { chain: wrongRoot }, 'invalid_document'],
    ['with another nonce', withField({ nonce: Buffer.alloc(32) }), 'invalid_document'],
    ['with another key', withField({ public_key: Buffer.alloc(65, 4) }), 'wrong_key'],
    ['with other code', withField({ pcrs: pcrsOf(1) }), 'unexpected_code'],
    ['with an old document', withField({ timestamp: tooOld }), 'document_expired'],
    ['with one more provider', { configuration: widened }, 'unexpected_configuration'],
    ['of other settings', withField({ user_data: Buffer.alloc(32) }), 'invalid_document'],
  ])('a notary %s is refused', async (_, attack, code) => {
    client.attack = attack
    await expect(client.notaries.refresh()).rejects.toMatchObject({
      code: 'no_notary',
      message: expect.stringContaining(`${code}: `),
    })
    expect(client.notaries.list().attested).toEqual([])
    expect(client.notaries.list().refused.map(({ reason }) => reason.code)).toEqual([code])
    expect(await codeOf()).toBe('no_notary')
  })

  it.each<[string, Attack, AffidavitErrorCode]>([
    ['none at all', { notaries: { notaries: [] } }, 'no_notary'],
    ['no object', { notaries: [] }, 'invalid_reply'],
  ])('a wrong list of notaries is refused: %s', async (_, attack, code) => {
    client.attack = attack
    await expect(client.notaries.refresh()).rejects.toMatchObject({ code })
  })

  it("notaries of the future are told as a matter of this machine's clock", async () => {
    client.nowMs = MADE_AT.getTime() - 61_000
    await expect(client.notaries.refresh()).rejects.toMatchObject({
      code: 'document_not_yet_valid',
      message: expect.stringContaining("is this machine's clock right?"),
    })
    expect(await codeOf()).toBe('document_not_yet_valid')
    client.nowMs = MADE_AT.getTime() - 59_000
    await expect(client.notaries.refresh()).resolves.toBeUndefined()
  })
})

describe('an answer is refused', () => {
  const LATER = { error: { code: 'x', message: 'later' } }
  const OLD = MADE_AT.getTime() - 4 * HOUR_MS
  const OTHER = Buffer.alloc(32)
  const provider = { name: 'demo', origin: 'http://operator.example', tls: null }
  const STEAL = { messages: [{ role: 'user', content: 'Steal?' }] }
  it.each<[string, Attack, AffidavitErrorCode]>([
    ['without a proof', { answer: () => otherAnswer }, 'no_proof'],
    ['that is an error', { answer: () => LATER }, 'error_in_answer'],
    ['that is no JSON', { text: () => '<html>' }, 'invalid_answer'],
    ['with a member twice', { text: (text) => `{"id":"c9",${text.slice(1)}` }, 'invalid_answer'],
    ['that is too long', { text: (text) => text + ' '.repeat(1_000_000) }, 'answer_too_large'],
    ['to another request', { request: (sent) => ({ ...sent, ...STEAL }) }, 'wrong_request'],
    ['with other words', changed(otherAnswer), 'wrong_response'],
    ['with another hash', changed({ hash: '00'.repeat(32) }), 'wrong_hash'],
    ['with another signature', changed({ signature: NO_SIGNATURE }), 'wrong_signature'],
    ['with another key', changed({ public_key: `0x04${'11'.repeat(64)}` }), 'wrong_key'],
    ['with a receipt that differs', changedIn('receipt', { finished_at: 1 }), 'not_in_log'],
    ['with another head', changedIn('log', { root: '00'.repeat(32) }), 'not_in_log'],
    ['with an unsigned head', changedIn('log', { signature: NO_SIGNATURE }), 'wrong_head'],
    ['with the head for another chain', changedIn('log', { chain_id: 1 }), 'wrong_head'],
    ['with an old document', { answersFields: { timestamp: OLD } }, 'document_expired'],
    ['with other settings', { answersFields: { user_data: OTHER } }, 'unexpected_configuration'],
    ['without a transaction', { answer: ({ tx_hash: _, ...answer }) => answer }, 'no_proof'],
    ['of a provider that is not configured', { receipt: { provider } }, 'wrong_provider'],
    ['that was cut', { receipt: { outcome: 'client_disconnected' } }, 'incomplete'],
    ['that was asked for twice', { receipt: { attempt: 2 } }, 'asked_again'],
    ['as a stream, which was not asked for', sentAs('text/event-stream'), 'invalid_answer'],
  ])('an answer %s is refused', async (_, attack, code) => {
    await client.notaries.refresh()
    client.attack = attack
    expect(await ask()).toEqual({ text: '', code })
    expect(client.proofs.size).toBe(0)
    client.attack = {}
    expect(await codeOf()).toBe('given')
  })

  it.each<[string, JsonObject]>([
    ['chain', { chain_id: 1 }],
    ['contract', { contract: `0x${'c1'.repeat(20)}` }],
  ])(
    "an answer whose notary signed its head for another %s is refused by the log's domain alone",
    async (_, changed) => {
      client.attack = { answer: (answer) => ({ ...answer, log: signedFor(answer.log, changed) }) }
      const response = await client.fetch(client.url, {
        method: 'POST',
        body: JSON.stringify(REQUEST),
      })
      const fault = await response.json().catch((error: unknown) => error)
      expect(fault).toMatchObject({ code: 'wrong_head' })
      const failed = (fault as AffidavitError).checks.filter(({ outcome }) => outcome === 'failed')
      expect(failed.map(({ name }) => name)).toEqual(['log domain'])
    },
  )

  it('a wrong answer is refused whichever way it is read', async () => {
    client.attack = { answer: () => otherAnswer }
    const send = () => client.fetch(client.url, { method: 'POST', body: JSON.stringify(REQUEST) })
    const refusal = { code: 'no_proof' }
    for (const read of ['text', 'json', 'arrayBuffer', 'blob', 'formData'] as const)
      await expect((await send())[read]()).rejects.toMatchObject(refusal)
    await expect((await send()).body?.getReader().read()).rejects.toMatchObject(refusal)
  })
})

describe('clients', () => {
  it('a caller that leaves gets the error it left with and no refusal', async () => {
    const left = new Error('left')
    const abort = new AbortController()
    client.attack = {
      respond: (_, headers) => {
        const body = new ReadableStream({
          pull(controller) {
            abort.abort(left)
            controller.error(left)
          },
        })
        return new Response(body, { headers })
      },
    }
    const init = { method: 'POST', body: JSON.stringify(REQUEST), signal: abort.signal }
    await expect(client.fetch(client.url, init)).rejects.toBe(left)
  })
})

describe('proofs', () => {
  it('the proof of an answer is there once it was read, and of no other answer', async () => {
    for (const stream of [false, true]) {
      const body = JSON.stringify({ ...REQUEST, stream })
      const answers = await Promise.all(
        [1, 2].map(() => client.fetch(client.url, { method: 'POST', body })),
      )
      for (const answer of answers) {
        const text = await answer.text()
        const proof = client.proofs.of(answer)
        expect(text).toContain(`"hash":"${proof?.hash}"`)
      }
      expect(client.proofs.of(new Response('{}'))).toBeUndefined()
    }
  })
})

describe('a stream is refused', () => {
  const streamed = { ...REQUEST, stream: true }
  const inject =
    (at: number): Attack['chunks'] =>
    (chunks) =>
      chunks.toSpliced(at, 0, chunkOf({ content: 'it all. ' }))
  const steal = chunkOf({ content: 'Steal ' })
  const { choices = [] } = chunkOf({ content: ' Now.' }, 'stop')
  const ERROR_EVENT = 'event: error\ndata: {"error":{"message":"later"}}'

  it.each<[string, Attack, AffidavitErrorCode]>([
    ['with a chunk more', { chunks: inject(2) }, 'wrong_stream'],
    ['with a chunk less', { chunks: (chunks) => chunks.toSpliced(1, 1) }, 'wrong_stream'],
    ['with other words', { chunks: (chunks) => chunks.with(1, steal) }, 'wrong_stream'],
    [
      'with words in the chunk with the proof',
      { chunks: (chunks) => chunks.with(-1, { ...chunks.at(-1), choices }) },
      'wrong_stream',
    ],
    ['without a proof', { chunks: () => CHUNKS }, 'no_proof'],
    ['without its end', { text: (text) => text.replace('data: [DONE]\n\n', '') }, 'cut_stream'],
    ['in the middle', { text: (text) => text.slice(0, text.length / 3) }, 'cut_stream'],
    ['as an object', sentAs('application/json'), 'invalid_answer'],
    [
      'that an error ends',
      { text: (text) => text.replace(/data: [^\n]*"Transfer[^\n]*/, ERROR_EVENT) },
      'error_in_answer',
    ],
  ])('a stream %s is refused', async (_, attack, code) => {
    await client.notaries.refresh()
    client.attack = attack
    expect(await ask(streamed)).toMatchObject({ code })
    expect(client.proofs.size).toBe(0)
    client.attack = {}
    expect(await codeOf(streamed)).toBe('given')
  })
})

describe('an old answer', () => {
  it('an old answer is refused when it is given again, whole and as a stream', async () => {
    for (const body of [REQUEST, { ...REQUEST, stream: true }]) {
      let old = ''
      client.attack = {
        text: (text) => {
          old = text
          return text
        },
      }
      expect(await codeOf(body)).toBe('given')
      client.attack = { text: () => old }
      expect(await codeOf(body)).toBe('wrong_request')
    }
  })

  it('an old answer may be given again under its Idempotency-Key, but not for another body', async () => {
    const key = { 'idempotency-key': 'k1' }
    let old = ''
    client.attack = {
      text: (text) => {
        old ||= text
        return old
      },
    }
    expect((await ask(REQUEST, key)).code).toBe('given')
    expect((await ask(REQUEST, key)).code).toBe('given')
    expect(client.bodies[1]).toBe(client.bodies[0])
    expect((await ask({ ...REQUEST, seed: 1 }, key)).code).toBe('wrong_request')
    expect((await ask(REQUEST, { 'idempotency-key': 'k2' })).code).toBe('wrong_request')
  })
})

describe('a nonce', () => {
  it.each([
    [
      '{"model":"m"}',
      /^\{"affidavit":\{"nonce":"[0-9a-f]{64}","credential":"operator","notary":"0x[0-9a-f]{40}"\},"model":"m"\}$/,
    ],
    [
      '{"a":1e2,"b":"\\u00e9é"}\n',
      /^\{"affidavit":\{"nonce":"[0-9a-f]{64}","credential":"operator","notary":"0x[0-9a-f]{40}"\},"a":1e2,"b":"\\u00e9é"\}\n$/,
    ],
  ])('the nonce is put into %j, and nothing else is changed', async (body, form) => {
    const response = await client.fetch(client.url, { method: 'POST', body })
    await response.text().catch(() => undefined)
    expect(client.bodies[0]).toMatch(form)
  })

  it("the place in a session that a caller names stays beside the client's own demands", async () => {
    const session = { id: '5e'.repeat(16), n: 0, previous: null, last: true }
    const body = JSON.stringify({ model: 'm', affidavit: { session } })
    const response = await client.fetch(client.url, { method: 'POST', body })
    await response.text().catch(() => undefined)
    expect(JSON.parse(client.bodies[0] ?? '')).toEqual({
      model: 'm',
      affidavit: { nonce: expect.any(String), credential: 'operator', notary: ADDRESS, session },
    })
  })
})
