import { createServer, type Server } from 'node:http'
import type { AddressInfo } from 'node:net'
import { createOpenAICompatible } from '@ai-sdk/openai-compatible'
import { ChatOpenAI } from '@langchain/openai'
import { jsonSchema, streamText, tool } from 'ai'
import { ChatOpenAI as OldChatOpenAI } from 'langchain-openai03'
import OpenAI7 from 'openai'
import OpenAI4 from 'openai4'
import OpenAI5 from 'openai5'
import OpenAI6 from 'openai6'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { assembleCompletion } from '#attestation/dialects/chat/assemble-completion.ts'
import { NO_CHUNKS, normalizeChunk } from '#attestation/dialects/chat/normalize-chunk.ts'
import { makeWellFormed } from '#attestation/json/parse-lenient.ts'
import type { JsonObject } from '#attestation/json/value.ts'
import { STREAM_CASES, type StreamCase } from '../../attestation/dialects/chat/cases.ts'

/*
 * The chunks that callers get for each stream of the table, read by unmodified clients: no client
 * throws, and all see the text and the tool calls of the record.
 */

let server: Server
let baseURL = ''
let chunks: readonly JsonObject[] = []

beforeAll(async () => {
  server = createServer((_, response) => {
    response.setHeader('content-type', 'text/event-stream')
    for (const chunk of chunks) response.write(`data: ${JSON.stringify(chunk)}\n\n`)
    response.end('data: [DONE]\n\n')
  })
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  baseURL = `http://127.0.0.1:${(server.address() as AddressInfo).port}/v1`
})

afterAll(() => void server.close())

/** The chunks that callers get, and the message that they add up to. */
function prepare({ events }: StreamCase): Expected {
  const terms = {
    usageAsked: false,
    choicesAsked: 1,
    fallback: { id: 'chatcmpl-1', created: 1, model: 'm' },
  }
  let state = NO_CHUNKS
  chunks = events
    .filter((text) => text.trim() !== '')
    .flatMap((text) => {
      const step = normalizeChunk(terms, state, JSON.parse(text))
      state = step.state
      return step.chunks.map((chunk) => makeWellFormed(chunk) as JsonObject)
    })
  const [choice] = assembleCompletion(chunks).choices as readonly [{ readonly message: Message }]
  const { content, tool_calls: calls = [] } = choice.message
  return {
    text: typeof content === 'string' ? content : null,
    calls: calls.flatMap(({ id, function: called }) =>
      called === undefined ? [] : [{ id, name: called.name, arguments: called.arguments }],
    ),
  }
}

type Message = {
  readonly content: unknown
  readonly tool_calls?: readonly {
    readonly id: string
    readonly function?: { readonly name: string; readonly arguments: string }
  }[]
}
type Expected = {
  /** Null for content parts, which these clients do not know. */
  readonly text: string | null
  readonly calls: readonly {
    readonly id: string
    readonly name: string
    readonly arguments: string
  }[]
}

const messages = [{ role: 'user' as const, content: 'Hi' }]

describe.each([
  ['4', OpenAI4],
  ['5', OpenAI5],
  ['6', OpenAI6],
  ['7', OpenAI7],
])('openai %s', (_, OpenAI) => {
  it.each(STREAM_CASES)('openai reads the stream with $name to its end', async (one) => {
    const { text, calls } = prepare(one)
    const client = new (OpenAI as typeof OpenAI7)({ baseURL, apiKey: 'k', maxRetries: 0 })
    const chat = 'stream' in client.chat.completions ? client.chat : betaOf(client)
    const stream = chat.completions.stream({ model: 'm', messages })
    const { message } = (await stream.finalChatCompletion()).choices[0] ?? expect.unreachable()
    if (text !== null) expect(message.content ?? '').toBe(text)
    expect(
      (message.tool_calls ?? []).flatMap((call) =>
        call.type === 'function'
          ? [{ id: call.id, name: call.function.name, arguments: call.function.arguments }]
          : [],
      ),
    ).toEqual(calls)
  })
})

/** openai 4 has its helper for streams in another place. */
function betaOf(client: OpenAI7): OpenAI7['chat'] {
  return (client.beta as unknown as { readonly chat: OpenAI7['chat'] }).chat
}

it.each(STREAM_CASES)('the AI SDK reads the stream with $name to its end', async (one) => {
  const { text, calls } = prepare(one)
  const provider = createOpenAICompatible({ name: 'x', baseURL, apiKey: 'k' })
  const faults: unknown[] = []
  const anything = tool({ inputSchema: jsonSchema({}) })
  const result = streamText({
    model: provider('m'),
    messages,
    tools: { f: anything, g: anything },
    maxRetries: 0,
    onError: ({ error }) => void faults.push(error),
  })
  const said = await result.text
  expect(faults).toEqual([])
  if (text !== null) expect(said).toBe(text)
  const found = (await result.toolCalls).map(({ toolCallId, toolName }) => [toolCallId, toolName])
  expect(found).toEqual(calls.map(({ id, name }) => [id, name]))
})

describe.each([
  ['current', ChatOpenAI],
  ['0.3', OldChatOpenAI],
])('LangChain %s', (_, Chat) => {
  it.each(STREAM_CASES)('LangChain reads the stream with $name to its end', async (one) => {
    const { text } = prepare(one)
    const options = { model: 'm', apiKey: 'k', configuration: { baseURL }, maxRetries: 0 }
    const model = new (Chat as typeof ChatOpenAI)(options)
    let said = ''
    for await (const { content } of await model.stream('Hi'))
      if (typeof content === 'string') said += content
    if (text !== null) expect(said).toBe(text)
  })
})
