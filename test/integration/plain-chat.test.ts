import { once } from 'node:events'
import type { AddressInfo } from 'node:net'
import OpenAI from 'openai'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { createDemoServer } from '#src/local/demo/server.ts'
import { openPlainStage, type PlainStage } from '../support/plain-stage.ts'
import {
  type ScriptedBackend,
  startScriptedBackend,
  textChunk,
  writeEvents,
} from '../support/scripted-backend.ts'
import { answerError, answerSilence, answerWith } from '../support/scripted-node.ts'

const DEMO_MODELS = ['demo/echo', 'demo/tools', 'demo/lorem']
const LIMITS = {
  firstTokenMs: 700,
  tokenMs: 700,
  waitMs: 300,
  drainMs: 500,
  asideMs: 300,
  tickMs: 20,
}

const demo = createDemoServer({ delayMs: 0, now: Date.now })
let stage: PlainStage
let client: OpenAI
/** Streams a word every 20 ms, forever. */
let endless: ScriptedBackend

beforeAll(async () => {
  demo.listen(0, '127.0.0.1')
  await once(demo, 'listening')
  const demoUrl = `http://127.0.0.1:${(demo.address() as AddressInfo).port}`
  endless = await startScriptedBackend(
    (response) => {
      const timer = setInterval(() => writeEvents(response, [textChunk('word ')]), 20)
      response.once('close', () => clearInterval(timer))
    },
    ['endless'],
  )
  stage = await openPlainStage({ limits: LIMITS })
  client = new OpenAI({
    baseURL: `${stage.gateway.url}/v1`,
    apiKey: stage.gateway.key,
    maxRetries: 0,
  })
  await stage.startAgent({ backendUrl: demoUrl, models: DEMO_MODELS })
  await stage.startAgent({ backendUrl: endless.url, models: ['endless'] })
  await stage.connect({ model: 'new', answer: answerWith('said by a new client') })
  await stage.connect({ model: 'old', answer: answerWith('said by an old client'), isOld: true })
})
afterAll(async () => {
  await stage.stop()
  await endless.stop()
  demo.closeAllConnections()
  demo.close()
})

const ask = (model: string, content = 'hello') => ({
  model,
  messages: [{ role: 'user' as const, content }],
})
const weather = {
  type: 'function' as const,
  function: {
    name: 'get_weather',
    parameters: { type: 'object', properties: { city: { type: 'string' } }, required: ['city'] },
  },
}
const untilIdle = () =>
  expect
    .poll(() => stage.nodes.status(), { timeout: 30_000 })
    .toMatchObject({
      slotsInUse: 0,
      runs: 0,
      queued: 0,
    })

describe('the official SDK, over a real agent', () => {
  it('the official SDK completes over a real agent, with usage', async () => {
    const answer = await client.chat.completions.create(ask('demo/echo'))
    expect(answer.choices[0]?.message.content).toBe('[demonstration] You said: hello')
    expect(answer.choices[0]?.finish_reason).toBe('stop')
    expect(answer.usage).toMatchObject({ prompt_tokens: 7, completion_tokens: 8, total_tokens: 15 })
    expect(answer).not.toHaveProperty('hash')
  })

  it('a plain stream has one id, a beginning, an end, and usage only when asked for', async () => {
    const chunks = []
    for await (const chunk of await client.chat.completions.create({
      ...ask('demo/echo'),
      stream: true,
    }))
      chunks.push(chunk)
    expect(new Set(chunks.map(({ id, created, model }) => `${id} ${created} ${model}`)).size).toBe(
      1,
    )
    expect(chunks[0]?.choices[0]?.delta).toEqual({ role: 'assistant', content: '' })
    expect(chunks.at(-1)?.choices[0]).toMatchObject({
      delta: { content: '' },
      finish_reason: 'stop',
    })
    expect(chunks.every(({ usage }) => usage === null)).toBe(true)
    expect(chunks.map(({ choices }) => choices[0]?.delta.content).join('')).toBe(
      '[demonstration] You said: hello',
    )
  })

  it('the official SDK gathers a stream into what the answer without stream is', async () => {
    const request = { ...ask('demo/echo'), n: 2, logprobs: true, top_logprobs: 2, seed: 4 }
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
    expect(pick(whole)).toHaveLength(2)
    expect(pick(gathered)).toEqual(pick(whole))
  })

  it('the official SDK calls tools over a real agent, streamed or not, and gives their results back', async () => {
    const question = { role: 'user' as const, content: 'get_weather({"city":"Oslo"})' }
    const request = { model: 'demo/tools', messages: [question], tools: [weather] }
    const answer = await client.chat.completions.create(request)
    const [call] = answer.choices[0]?.message.tool_calls ?? []
    if (call?.type !== 'function') throw new Error('expected a function call')
    expect(call.function).toEqual({ name: 'get_weather', arguments: '{"city":"Oslo"}' })
    expect(answer.choices[0]).toMatchObject({
      finish_reason: 'tool_calls',
      message: { content: null },
    })
    const streamed = await client.chat.completions.stream(request).finalChatCompletion()
    expect(streamed.choices[0]?.message.tool_calls?.[0]).toMatchObject({ function: call.function })
    const final = await client.chat.completions.create({
      ...request,
      messages: [
        question,
        { role: 'assistant', content: null, tool_calls: [call] },
        { role: 'tool', tool_call_id: call.id, content: 'rain' },
      ],
    })
    expect(final.choices[0]?.message.content).toBe('[demonstration] The tool answered: rain')
  })

  it('the official SDK parses structured output over a real agent', async () => {
    const schema = { type: 'object', properties: { age: { type: 'integer' } }, required: ['age'] }
    const answer = await client.chat.completions.parse({
      ...ask('demo/echo'),
      response_format: {
        type: 'json_schema',
        json_schema: { name: 'person', strict: true, schema },
      },
    })
    expect(answer.choices[0]?.message.parsed).toEqual({ age: 0 })
  })

  it('an abort of the official SDK reaches the backend, and the slot is free again', async () => {
    const leaving = new AbortController()
    const stream = await client.chat.completions.create(
      { ...ask('endless'), stream: true },
      { signal: leaving.signal },
    )
    const read = async () => {
      for await (const _ of stream) leaving.abort()
    }
    await read().catch(() => undefined)
    await expect.poll(() => endless.left()).toBe(1)
    await untilIdle()
    const whole = client.chat.completions.create(ask('endless'), { signal: leaving.signal })
    await expect(whole).rejects.toThrow(OpenAI.APIUserAbortError)
    await untilIdle()
    expect(endless.open()).toBe(0)
  })

  it('the official SDK is given a refusal of the backend in its words', async () => {
    await stage.connect({ model: 'picky', answer: answerError(400, 'context is too long') })
    const refused = client.chat.completions.create(ask('picky'))
    await expect(refused).rejects.toThrow(OpenAI.BadRequestError)
    await expect(client.chat.completions.create(ask('picky'))).rejects.toThrow(
      'context is too long',
    )
  })

  it('the official SDK gets an error when no node serves a model, and when the nodes of a model are gone', async () => {
    await expect(client.chat.completions.create(ask('nobodys'))).rejects.toThrow(
      OpenAI.NotFoundError,
    )
    const node = await stage.connect({ model: 'fleeting' })
    expect((await client.chat.completions.create(ask('fleeting'))).choices).toHaveLength(1)
    await node.close()
    await expect(client.chat.completions.create(ask('fleeting'))).rejects.toMatchObject({
      status: 503,
      code: 'no_available_inference_nodes',
    })
    const stream = await client.chat.completions.create({ ...ask('fleeting'), stream: true })
    const read = async () => {
      for await (const _ of stream);
    }
    await expect(read()).rejects.toThrow(OpenAI.APIError)
  })

  it('the official SDK lists the models that can be asked for', async () => {
    const models = await client.models.list()
    expect(models.data.map(({ id }) => id)).toEqual(
      expect.arrayContaining([...DEMO_MODELS, 'new', 'old', 'endless']),
    )
    expect(models.data.map(({ id }) => id)).not.toContain('fleeting')
  })
})

describe('clients that follow the protocol frame by frame', () => {
  it.each(['new', 'old'])(
    'an answer of the %s node client is whole, streamed or not',
    async (model) => {
      const answer = await client.chat.completions.create(ask(model))
      const content = answer.choices[0]?.message.content
      expect(content).toContain(`${model} client`)
      expect(answer.usage).toMatchObject({ prompt_tokens: 9, completion_tokens: 5 })
      const gathered = await client.chat.completions
        .stream({ ...ask(model), stream_options: { include_usage: true } })
        .finalChatCompletion()
      expect(gathered.choices[0]?.message.content).toBe(content)
      expect(gathered.usage).toEqual(answer.usage)
    },
  )

  it('a node that is silent is replaced before its first token, and given up after it', async () => {
    await stage.connect({ model: 'mute', answer: answerSilence() })
    await expect(client.chat.completions.create(ask('mute'))).rejects.toMatchObject({
      status: 504,
      code: 'node_timeout',
    })
    const good = await stage.connect({ model: 'mute', answer: answerWith('at last') })
    for (let call = 0; call < 4; call++)
      expect((await client.chat.completions.create(ask('mute'))).choices[0]?.message.content).toBe(
        'at last',
      )
    await good.close()
    await stage.connect({ model: 'stuck', answer: answerSilence(2) })
    await expect(client.chat.completions.create(ask('stuck'))).rejects.toMatchObject({
      status: 504,
    })
    const stream = await client.chat.completions.create({ ...ask('stuck'), stream: true })
    let text = ''
    const read = async () => {
      for await (const chunk of stream) text += chunk.choices[0]?.delta.content ?? ''
    }
    await expect(read()).rejects.toThrow('The node stopped answering')
    expect(text).toBe('word0 word1 ')
  })

  it('a completion that a node served is counted to the node', async () => {
    const nodeId = await stage.register(['counted'])
    await stage.connect({ model: 'counted', nodeId })
    await client.chat.completions.create(ask('counted'))
    await expect
      .poll(() => stage.gateway.inferences.stats(nodeId, Math.floor(Date.now() / 1000)), {
        timeout: 30_000,
      })
      .toMatchObject({ completed: [{ model: 'counted', promptTokens: 9 }] })
  })
})
