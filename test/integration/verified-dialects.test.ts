import Anthropic from '@anthropic-ai/sdk'
import OpenAI from 'openai'
import { beforeAll, describe, expect, it } from 'vitest'
import { runCli } from '../support/run-cli.ts'
import { type SharedAffidavit, useAffidavit } from '../support/use-affidavit.ts'

let service: SharedAffidavit
let openai: OpenAI
let anthropic: Anthropic

beforeAll(async () => {
  service = await useAffidavit()
  const { url, apiKey } = service
  openai = new OpenAI({ baseURL: `${url}/v1/verified`, apiKey, maxRetries: 0 })
  anthropic = new Anthropic({
    baseURL: `${url}/v1/verified/anthropic`,
    apiKey,
    authToken: null,
    maxRetries: 0,
  })
})

const PROOF = ['hash', 'public_key', 'signature', 'tx_hash', 'attestation', 'receipt', 'log']
const TASK = 'First read_file({"path":"a.txt"}), then read_file({"path":"b.txt"}).'
const parameters = { type: 'object' as const, properties: { path: { type: 'string' } } }
const post = (path: string, body: object, headers: Readonly<Record<string, string>> = {}) =>
  fetch(service.url + path, {
    method: 'POST',
    headers: {
      authorization: `Bearer ${service.apiKey}`,
      'content-type': 'application/json',
      ...headers,
    },
    body: JSON.stringify(body),
  })
const get = async (path: string) => {
  const headers = { authorization: `Bearer ${service.apiKey}` }
  const response = await fetch(service.url + path, { headers })
  expect(response.status).toBe(200)
  return response.text()
}

/** The proof that an SDK shows of an answer. */
function proofOf(answer: object): { readonly hash: string; readonly receipt: object } {
  const proof = Reflect.get(answer, 'affidavit')
  for (const name of PROOF) expect(proof).toHaveProperty(name)
  return proof
}

/** Verifies the record and the bundle of a hash with the command line, as a third party would. */
async function expectVerified(hash: string): Promise<void> {
  for (const path of [`/v1/verified/records/${hash}`, `/v1/verified/records/${hash}/evidence`]) {
    const input = await get(path)
    const run = await runCli(['verify', '-', '--any-measurement', '--root', service.rootFile], {
      input,
    })
    expect(run).toMatchObject({ code: 0, stderr: '' })
  }
}

describe('Responses with evidence, by the official SDK', () => {
  it('a whole response carries its proof, and its record verifies', async () => {
    const answer = await openai.responses.create({ model: 'demo/echo', input: 'Hello' })
    expect(answer.output_text).toContain('Hello')
    const { hash, receipt } = proofOf(answer)
    expect(receipt).toMatchObject({ dialect: 'responses', headers: {} })
    await expectVerified(hash)
  })

  it('a task of several tool calls streams, with a proof in every last event', async () => {
    const tools = [
      { type: 'function' as const, name: 'read_file', parameters, strict: false as const },
    ]
    const input: OpenAI.Responses.ResponseInput = [{ role: 'user', content: TASK }]
    const hashes: string[] = []
    for (let turn = 0; turn < 4; turn++) {
      const stream = openai.responses.stream({ model: 'demo/task', input, tools })
      const response = await stream.finalResponse()
      hashes.push(proofOf(response).hash)
      input.push(...(response.output as OpenAI.Responses.ResponseInputItem[]))
      const calls = response.output.filter((item) => item.type === 'function_call')
      if (calls.length === 0) break
      for (const { call_id, arguments: text } of calls)
        input.push({ type: 'function_call_output', call_id, output: `content of ${text}` })
    }
    expect(hashes).toHaveLength(3)
    for (const hash of hashes) await expectVerified(hash)
  })

  it('a member that hides the prompt is refused with 400, by its name', async () => {
    const asked = { model: 'demo/echo', input: 'Hello', previous_response_id: 'resp_1' }
    const failure = openai.responses.create(asked)
    await expect(failure).rejects.toMatchObject({ status: 400, param: 'previous_response_id' })
  })

  it('a model that no provider serves in the dialect is refused with 400', async () => {
    const failure = openai.responses.create({ model: 'gemini-x', input: 'Hello' })
    await expect(failure).rejects.toMatchObject({ status: 400, code: 'unsupported_model' })
  })

  it('an upgrade to WebSocket is answered with 426', async () => {
    const { Agent, request } = await import('node:http')
    const agent = new Agent()
    const status = await new Promise((resolve, reject) => {
      const asked = request(`${service.url}/v1/verified/responses`, {
        agent,
        headers: {
          connection: 'upgrade',
          upgrade: 'websocket',
          'sec-websocket-key': 'dGhlIHNhbXBsZSBub25jZQ==',
          'sec-websocket-version': '13',
        },
      })
      asked.on('response', ({ statusCode }) => resolve(statusCode)).on('error', reject)
      asked.end()
    })
    agent.destroy()
    expect(status).toBe(426)
  })
})

describe('Messages with evidence, by the official SDK', () => {
  it('a whole message carries its proof, and its record verifies', async () => {
    const answer = await anthropic.messages.create({
      model: 'demo/echo',
      max_tokens: 100,
      messages: [{ role: 'user', content: 'Hello' }],
    })
    const { hash, receipt } = proofOf(answer)
    expect(receipt).toMatchObject({
      dialect: 'messages',
      headers: { 'anthropic-version': expect.any(String) },
    })
    await expectVerified(hash)
  })

  it('a task of several tool calls with thinking streams, with a proof in message_stop', async () => {
    const messages: Anthropic.MessageParam[] = [{ role: 'user', content: TASK }]
    const hashes: string[] = []
    for (let turn = 0; turn < 4; turn++) {
      const stream = anthropic.messages.stream({
        model: 'demo/task',
        max_tokens: 2000,
        messages,
        thinking: { type: 'enabled', budget_tokens: 1024 },
        tools: [{ name: 'read_file', input_schema: parameters }],
      })
      stream.on('streamEvent', (event) => {
        if (event.type === 'message_stop') hashes.push(proofOf(event).hash)
      })
      const message = await stream.finalMessage()
      messages.push({ role: 'assistant', content: message.content })
      const calls = message.content.filter((block) => block.type === 'tool_use')
      if (calls.length === 0) break
      messages.push({
        role: 'user',
        content: calls.map(({ id, input }) => ({
          type: 'tool_result',
          tool_use_id: id,
          content: `content of ${JSON.stringify(input)}`,
        })),
      })
    }
    expect(hashes).toHaveLength(3)
    for (const hash of hashes) await expectVerified(hash)
  })

  it('an error has the form of the dialect, whatever its cause', async () => {
    const asked = { max_tokens: 10, messages: [{ role: 'user' as const, content: 'Hello' }] }
    const failure = anthropic.messages.create({ ...asked, model: 'gemini-x' })
    await expect(failure).rejects.toMatchObject({
      status: 400,
      error: { type: 'error', error: { type: 'invalid_request_error' } },
    })
    const stranger = new Anthropic({
      baseURL: `${service.url}/v1/verified/anthropic`,
      apiKey: 'nobody',
      authToken: null,
      maxRetries: 0,
    })
    await expect(stranger.messages.create({ ...asked, model: 'demo/echo' })).rejects.toMatchObject({
      status: 401,
      error: { error: { type: 'authentication_error' } },
    })
  })
})

describe('calls of every dialect', () => {
  const bodies = {
    '/v1/verified/responses': { model: 'demo/echo', input: 'Repeated' },
    '/v1/verified/anthropic/messages': {
      model: 'demo/echo',
      max_tokens: 50,
      messages: [{ role: 'user', content: 'Repeated' }],
    },
  }

  it.each(Object.entries(bodies))(
    'a repeated key at %s gets the same answer',
    async (path, body) => {
      for (const stream of [false, true]) {
        const headers = { 'idempotency-key': crypto.randomUUID() }
        const one = await (await post(path, { ...body, stream }, headers)).text()
        const again = await post(path, { ...body, stream }, headers)
        expect(again.headers.get('idempotent-replayed')).toBe('true')
        const hashIn = (text: string) => /"hash":"([0-9a-f]{64})"/.exec(text)?.[1]
        const other = await again.text()
        expect(hashIn(one)).toMatch(/^[0-9a-f]{64}$/)
        expect(hashIn(other)).toBe(hashIn(one))
        if (stream) expect(other).toMatch(/event: (response\.completed|message_stop)\n/)
        else expect(other).toBe(one)
      }
    },
  )

  it.each(Object.entries(bodies))(
    'a repeated key at %s with other demands in a header is refused',
    async (path, body) => {
      const key = { 'idempotency-key': crypto.randomUUID() }
      const demand = (n: number) => {
        const session = { id: 'ab'.repeat(16), n, previous: n === 0 ? null : 'cd'.repeat(32) }
        const json = JSON.stringify({ session })
        return { ...key, 'affidavit-call': Buffer.from(json).toString('base64url') }
      }
      expect((await post(path, body, demand(0))).status).toBe(200)
      const other = await post(path, body, demand(1))
      expect(other.status).toBe(409)
      expect(await other.text()).toContain('idempotency_key_reused')
      expect((await post(path, body, demand(0))).headers.get('idempotent-replayed')).toBe('true')
    },
  )

  it('skills in a form that cannot be read are refused with 400, by their name', async () => {
    const path = '/v1/verified/anthropic/messages'
    const answer = await post(path, { ...bodies[path], container: { skills: 'skill_1' } })
    expect(answer.status).toBe(400)
    expect(await answer.text()).toContain('container cannot be verified')
  })

  it('the list of records has all dialects, and the list of chats has chats alone', async () => {
    const answer = await openai.responses.create({ model: 'demo/echo', input: 'Listed' })
    const { hash } = proofOf(answer)
    type Listed = { readonly hash: string; readonly dialect?: string; readonly request: unknown }
    const listOf = async (path: string) =>
      (JSON.parse(await get(`${path}?limit=50`)) as { readonly completions: readonly Listed[] })
        .completions
    const records = await listOf('/v1/verified/records')
    expect(records.find((record) => record.hash === hash)).toMatchObject({
      dialect: 'responses',
      request: { dialect: 'responses', headers: {}, body: { model: 'demo/echo', input: 'Listed' } },
    })
    const chats = await listOf('/v1/verified/chat/completions')
    expect(chats.some((record) => record.hash === hash)).toBe(false)
    expect(chats.every((record) => record.dialect === undefined)).toBe(true)
    const found = JSON.parse(await get('/v1/verified/records?q=LISTED&limit=5')) as {
      readonly completions: readonly Listed[]
    }
    expect(found.completions.map((record) => record.hash)).toContain(hash)
  })
})
