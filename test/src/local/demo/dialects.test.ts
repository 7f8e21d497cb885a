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

  function tool(): OpenAI.Responses.FunctionTool {
    return { type: 'function', name: 'read_file', parameters, strict: false }
  }
})

describe('the demo provider in Messages', () => {
  const tools = [{ name: 'read_file', input_schema: parameters as { type: 'object' } }]
  const asked = { model: 'demo/echo', max_tokens: 100 }

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
})
