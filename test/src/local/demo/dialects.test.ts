import { once } from 'node:events'
import type { AddressInfo } from 'node:net'
import Anthropic from '@anthropic-ai/sdk'
import OpenAI from 'openai'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { EventParser } from '#attestation/dialects/chat/event-parser.ts'
import { EVENT_DIALECTS, type EventDialect } from '#attestation/dialects/dialects.ts'
import type { JsonObject } from '#attestation/json/value.ts'
import { createDemoServer } from '#src/local/demo/server.ts'

const server = createDemoServer({ delayMs: 0, now: () => 1_800_000_000_500 })
let origin = ''
let openai: OpenAI
let anthropic: Anthropic

beforeAll(async () => {
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  origin = `http://127.0.0.1:${(server.address() as AddressInfo).port}`
  openai = new OpenAI({ baseURL: `${origin}/v1`, apiKey: 'none', maxRetries: 0 })
  anthropic = new Anthropic({ baseURL: origin, apiKey: 'none', maxRetries: 0 })
})
afterAll(() => {
  server.close()
  server.closeAllConnections()
})

const task = 'First read_file({"path":"a.txt"}), then read_file({"path":"b.txt"}).'
const thinks = { reasoning: { effort: 'low' as const } }
const parameters = { type: 'object', properties: { path: { type: 'string' } } }
const files: Readonly<Record<string, string>> = { 'a.txt': 'one', 'b.txt': 'two' }

function read(path: string): string {
  return files[path] ?? 'no such file'
}

/** The text of a stream, and its events as one dialect reads them. */
async function streamOf(dialect: EventDialect, path: string, body: JsonObject) {
  const sent = JSON.stringify({ ...body, stream: true })
  const response = await fetch(`${origin}${path}`, { method: 'POST', body: sent })
  const parser = new EventParser()
  const events = [...parser.push(new Uint8Array(await response.arrayBuffer())), ...parser.end()]
  const reader = dialect.openStream()
  const given = events.flatMap(({ event, data }) => reader.read({ event, data: JSON.parse(data) }))
  return { events, given, reader }
}

describe('the demo provider in Responses', () => {
  const responses = '/v1/responses'

  it('the demonstration answers a text with what it says', async () => {
    const answer = await openai.responses.create({ model: 'demo/echo', input: 'hello' })
    expect(answer.output_text).toBe('[demonstration] You said: hello')
    expect(answer.usage?.total_tokens).toBeGreaterThan(0)
  })

  it('the demonstration gives the same answer to the same request, whole and streamed', async () => {
    const asked = { ...thinks, model: 'demo/task', input: task, tools: [tool()] }
    const [first, second] = [
      await openai.responses.create({ ...asked, stream: false }),
      await openai.responses.create({ ...asked, stream: false }),
    ]
    expect(first.output).toEqual(second.output)
    const stream = openai.responses.stream(asked)
    expect((await stream.finalResponse()).output).toMatchObject(
      first.output.map((item) => ({ id: item.id, type: item.type })),
    )
  })

  it('the strict reader gives out each event of the demonstration as it came', async () => {
    const bodies: readonly JsonObject[] = [
      { model: 'demo/echo', input: 'hello' },
      { model: 'demo/refusal', input: 'hello' },
      { ...thinks, model: 'demo/task', input: task, tools: [tool() as unknown as JsonObject] },
      { model: 'demo/lorem', input: 'Write 90 words', max_output_tokens: 20 },
    ]
    for (const body of bodies) {
      const { events, given, reader } = await streamOf(EVENT_DIALECTS.responses, responses, body)
      expect(given.map(({ data }) => data)).toEqual(events.map(({ data }) => JSON.parse(data)))
      expect(reader.isEnded).toBe(true)
    }
  })

  it('the demonstration thinks in Responses only when reasoning is asked for', async () => {
    const typesOf = async (more: object) => {
      const asked = { model: 'demo/task', input: task, tools: [tool()], ...more }
      return (await openai.responses.create(asked)).output.map(({ type }) => type)
    }
    expect(await typesOf({})).toEqual(['function_call'])
    expect(await typesOf({ reasoning: { effort: 'none' } })).toEqual(['function_call'])
    expect(await typesOf({ reasoning: {} })).toEqual(['reasoning', 'function_call'])
    expect(await typesOf(thinks)).toEqual(['reasoning', 'function_call'])
  })

  it('the demonstration makes the calls of a task one after the other', async () => {
    const input: OpenAI.Responses.ResponseInputItem[] = [{ role: 'user', content: task }]
    const called: string[] = []
    for (let turn = 0; turn < 5; turn++) {
      const answer = await openai.responses.create({ model: 'demo/task', input, tools: [tool()] })
      input.push(...(answer.output as OpenAI.Responses.ResponseInputItem[]))
      const calls = answer.output.filter((item) => item.type === 'function_call')
      if (calls.length === 0) {
        expect(answer.output_text).toBe('[demonstration] The tool answered: two')
        break
      }
      for (const call of calls) {
        const { path } = JSON.parse(call.arguments) as { readonly path: string }
        called.push(path)
        input.push({ type: 'function_call_output', call_id: call.call_id, output: read(path) })
      }
    }
    expect(called).toEqual(['a.txt', 'b.txt'])
  })

  it('the demonstration refuses an unknown model as OpenAI does', async () => {
    const asked = openai.responses.create({ model: 'gpt-9', input: 'hello' })
    await expect(asked).rejects.toMatchObject({ status: 404, code: 'model_not_found' })
  })

  function tool(): OpenAI.Responses.FunctionTool {
    return { type: 'function', name: 'read_file', parameters, strict: false }
  }
})

describe('the demo provider in Messages', () => {
  const tools = [{ name: 'read_file', input_schema: parameters as { type: 'object' } }]
  const asked = { model: 'demo/echo', max_tokens: 100 }
  const hello = [{ role: 'user' as const, content: 'hello' }]

  it('the demonstration answers a text with what it says', async () => {
    const message = await anthropic.messages.create({ ...asked, messages: hello })
    expect(message.content).toEqual([{ type: 'text', text: '[demonstration] You said: hello' }])
    expect(message.stop_reason).toBe('end_turn')
  })

  it('the SDK assembles the stream of the demonstration to its whole answer', async () => {
    const agent = {
      ...asked,
      model: 'demo/task',
      max_tokens: 2_000,
      thinking: { type: 'enabled' as const, budget_tokens: 1_024 },
      messages: [{ role: 'user' as const, content: task }],
      tools,
    }
    const whole = await anthropic.messages.create(agent)
    const streamed = await anthropic.messages.stream(agent).finalMessage()
    const read = await streamOf(
      EVENT_DIALECTS.messages,
      '/v1/messages',
      agent as unknown as JsonObject,
    )
    expect(whole.content.map(({ type }) => type)).toEqual(['thinking', 'tool_use'])
    expect(streamed.content).toMatchObject(whole.content)
    expect(read.reader.response()).toMatchObject({ content: whole.content })
  })

  it('the strict reader gives out each event of the demonstration but pings as it came', async () => {
    const bodies: readonly JsonObject[] = [
      { ...asked, messages: hello },
      { ...asked, model: 'demo/refusal', messages: hello },
      { ...asked, model: 'demo/lorem', max_tokens: 5, messages: hello },
    ]
    for (const body of bodies) {
      const { events, given, reader } = await streamOf(
        EVENT_DIALECTS.messages,
        '/v1/messages',
        body,
      )
      expect(given.map(({ data }) => data)).toEqual(
        events.filter(({ event }) => event !== 'ping').map(({ data }) => JSON.parse(data)),
      )
      expect(reader.isEnded).toBe(true)
    }
  })

  it('the demonstration makes the calls of a task one after the other', async () => {
    const messages: Anthropic.MessageParam[] = [{ role: 'user', content: task }]
    const called: string[] = []
    for (let turn = 0; turn < 5; turn++) {
      const message = await anthropic.messages.create({
        ...asked,
        model: 'demo/task',
        messages,
        tools,
      })
      messages.push({ role: 'assistant', content: message.content })
      const calls = message.content.filter((block) => block.type === 'tool_use')
      if (calls.length === 0) {
        expect(message.content).toEqual([
          { type: 'text', text: '[demonstration] The tool answered: two' },
        ])
        break
      }
      messages.push({
        role: 'user',
        content: calls.map(({ id, input }) => {
          const { path } = input as { readonly path: string }
          called.push(path)
          return { type: 'tool_result', tool_use_id: id, content: read(path) }
        }),
      })
    }
    expect(called).toEqual(['a.txt', 'b.txt'])
  })

  it('the demonstration counts the tokens that it would be asked', async () => {
    const { input_tokens: counted } = await anthropic.messages.countTokens({
      model: 'demo/echo',
      messages: hello,
    })
    const { usage } = await anthropic.messages.create({ ...asked, messages: hello })
    expect(counted).toBe(usage.input_tokens)
  })

  it('the demonstration refuses an unknown model as Anthropic does', async () => {
    const refused = anthropic.messages.create({ ...asked, model: 'claude-9', messages: hello })
    await expect(refused).rejects.toMatchObject({
      status: 404,
      error: { type: 'error', error: { type: 'not_found_error' } },
    })
  })
})
