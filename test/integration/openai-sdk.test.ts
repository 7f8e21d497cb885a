import { writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import OpenAI from 'openai'
import { beforeAll, describe, expect, it } from 'vitest'
import { runCli } from '../support/run-cli.ts'
import { type SharedAffidavit, useAffidavit } from '../support/use-affidavit.ts'

let service: SharedAffidavit
let client: OpenAI

beforeAll(async () => {
  service = await useAffidavit()
  client = new OpenAI({
    baseURL: `${service.url}/v1/verified`,
    apiKey: service.apiKey,
    maxRetries: 0,
  })
})

const hello = { model: 'demo/echo', messages: [{ role: 'user' as const, content: 'hello' }] }
const weather = {
  type: 'function' as const,
  function: {
    name: 'get_weather',
    parameters: { type: 'object', properties: { city: { type: 'string' } }, required: ['city'] },
  },
}
const PROOF = ['hash', 'public_key', 'signature', 'tx_hash', 'attestation', 'receipt']

async function recordOf(hash: unknown): Promise<string> {
  const headers = { authorization: `Bearer ${service.apiKey}` }
  const response = await fetch(`${service.url}/v1/verified/chat/completions/${hash}`, { headers })
  expect(response.status).toBe(200)
  return response.text()
}

async function expectVerified(record: string): Promise<void> {
  const run = await runCli(['verify', '-', '--any-measurement', '--root', service.rootFile], {
    input: record,
  })
  expect(run).toMatchObject({ code: 0, stderr: '' })
}

describe('the official SDK, pointed at /v1/verified', () => {
  it('the official SDK completes, with usage and the proof beside the interface’s members', async () => {
    const answer = await client.chat.completions.create(hello)
    expect(answer.choices[0]?.message.content).toBe('[demonstration] You said: hello')
    expect(answer.usage).toMatchObject({ prompt_tokens: 7, completion_tokens: 8, total_tokens: 15 })
    for (const name of PROOF) expect(answer).toHaveProperty(name)
    await expectVerified(await recordOf(Reflect.get(answer, 'hash')))
  })

  it('a verified stream has one id, usage only when asked for, and the proof in the last chunk', async () => {
    const stream = await client.chat.completions.create({ ...hello, stream: true })
    const chunks = []
    for await (const chunk of stream) chunks.push(chunk)
    expect(chunks[0]?.choices[0]?.delta).toMatchObject({ role: 'assistant', content: '' })
    expect(new Set(chunks.map((chunk) => chunk.id)).size).toBe(1)
    expect(chunks.every((chunk) => chunk.usage === null)).toBe(true)
    expect(chunks.map((chunk) => chunk.choices[0]?.delta.content ?? '').join('')).toBe(
      '[demonstration] You said: hello',
    )
    const proof = chunks.at(-1)
    for (const name of [...PROOF, 'receipt', 'log']) expect(proof).toHaveProperty(name)
    expect(proof?.choices[0]?.finish_reason).toBe('stop')
    for (const chunk of chunks) expect(chunk.choices[0]).toBeDefined()
    const record = await recordOf(Reflect.get(proof ?? {}, 'hash'))
    expect(JSON.parse(record).response.usage.total_tokens).toBe(15)
    await expectVerified(record)
  })

  it('the official SDK reports usage of a stream when asked to, and gathers the stream into the answer', async () => {
    const request = { ...hello, n: 2, logprobs: true, top_logprobs: 2, seed: 4 }
    const whole = await client.chat.completions.create(request)
    const gathered = await client.chat.completions
      .stream({ ...request, stream_options: { include_usage: true } })
      .finalChatCompletion()
    expect(gathered.usage).toEqual(whole.usage)
    const pick = (answer: typeof whole) =>
      answer.choices.map((choice) => [
        choice.message.content,
        choice.logprobs,
        choice.finish_reason,
      ])
    expect(pick(gathered)).toEqual(pick(whole))
  })

  it('the official SDK calls tools, streamed or not, and gives their results back', async () => {
    const ask = { role: 'user' as const, content: 'get_weather({"city":"Oslo"})' }
    const request = { model: 'demo/echo', messages: [ask], tools: [weather] }
    const answer = await client.chat.completions.create(request)
    const [call] = answer.choices[0]?.message.tool_calls ?? []
    if (call?.type !== 'function') throw new Error('expected a function call')
    expect(call.function).toEqual({ name: 'get_weather', arguments: '{"city":"Oslo"}' })
    expect(answer.choices[0]?.finish_reason).toBe('tool_calls')
    const streamed = await client.chat.completions.stream(request).finalChatCompletion()
    expect(streamed.choices[0]?.message.tool_calls?.[0]).toMatchObject({ function: call.function })
    const final = await client.chat.completions.create({
      ...request,
      messages: [
        ask,
        { role: 'assistant', content: null, tool_calls: [call] },
        { role: 'tool', tool_call_id: call.id, content: 'rain' },
      ],
    })
    expect(final.choices[0]?.message.content).toBe('[demonstration] The tool answered: rain')
    await expectVerified(await recordOf(Reflect.get(final, 'hash')))
  })

  it('the official SDK parses structured output', async () => {
    const schema = { type: 'object', properties: { age: { type: 'integer' } }, required: ['age'] }
    const answer = await client.chat.completions.parse({
      ...hello,
      response_format: {
        type: 'json_schema',
        json_schema: { name: 'person', strict: true, schema },
      },
    })
    expect(answer.choices[0]?.message.parsed).toEqual({ age: 0 })
  })

  it('the official SDK throws its own errors for what is refused', async () => {
    const wrongKey = new OpenAI({
      baseURL: `${service.url}/v1/verified`,
      apiKey: 'wrong',
      maxRetries: 0,
    })
    await expect(wrongKey.chat.completions.create(hello)).rejects.toThrow(
      OpenAI.AuthenticationError,
    )
    await expect(client.chat.completions.create({ ...hello, temperature: 3 })).rejects.toThrow(
      OpenAI.UnprocessableEntityError,
    )
    const unknown = client.chat.completions.create({ ...hello, model: 'no-such-model' })
    await expect(unknown).rejects.toThrow(OpenAI.NotFoundError)
    const refused = client.chat.completions.create({ ...hello, model: 'demo/none' })
    await expect(refused).rejects.toMatchObject({
      status: 404,
      message: expect.stringContaining('does not exist'),
    })
  })

  it('the official SDK lists what it made, newest first', async () => {
    const { completions } = (await client.get('/chat/completions', { query: { limit: 2 } })) as {
      completions: { id: string; request: { messages: unknown }; created_at: number }[]
    }
    expect(completions).toHaveLength(2)
    expect(completions[0]?.created_at).toBeGreaterThanOrEqual(completions[1]?.created_at ?? 0)
  })
})

describe('an answer that a caller kept', () => {
  async function post(body: object): Promise<string> {
    const response = await fetch(`${service.url}/v1/verified/chat/completions`, {
      method: 'POST',
      headers: { authorization: `Bearer ${service.apiKey}`, 'content-type': 'application/json' },
      body: JSON.stringify(body),
    })
    return response.text()
  }

  it.each([
    ['whole', hello],
    [
      'as the stream it came in',
      { ...hello, stream: true, stream_options: { include_usage: true } },
    ],
  ])('an answer that a caller kept verifies against its request, %s', async (_, request) => {
    const answer = await post(request)
    const file = join(service.dataFolder, 'request.json')
    await writeFile(file, JSON.stringify(request))
    const good = await runCli(['verify', '-', '--request', file], { input: answer })
    expect(good).toMatchObject({ code: 0, stderr: '' })
    const changed = await runCli(['verify', '-', '--request', file], {
      input: answer.replaceAll('hello', 'hullo'),
    })
    expect(changed.code).toBe(1)
    await writeFile(file, JSON.stringify({ ...request, seed: 9 }))
    expect((await runCli(['verify', '-', '--request', file], { input: answer })).code).toBe(1)
  })
})
