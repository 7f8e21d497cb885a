import { existsSync, mkdtempSync, readdirSync, readFileSync, writeFileSync } from 'node:fs'
import { rm } from 'node:fs/promises'
import { createServer, type Server } from 'node:http'
import type { AddressInfo } from 'node:net'
import { tmpdir } from 'node:os'
import path from 'node:path'
import { createOpenAICompatible } from '@ai-sdk/openai-compatible'
import Anthropic from '@anthropic-ai/sdk'
import type { AIMessageChunk } from '@langchain/core/messages'
import { ChatOpenAI } from '@langchain/openai'
import { generateText, streamText } from 'ai'
import OpenAI from 'openai'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { connect } from '#client/index.ts'
import { serveProxy } from '#src/cli/proxy/serve-proxy.ts'
import { type Affidavit, startAffidavit } from '../support/affidavit.ts'
import { readExpectedService } from '../support/expected-service.ts'
import { needShared } from '../support/needs.ts'

/*
 * Answers of real providers, as a public SDK project recorded them. What the official SDKs read of
 * an answer through enclave, gateway and proxy is what they read directly from the recording.
 */

const ANSWERS = path.join(import.meta.dirname, '../../../shared/fixtures/answers')
const shared = needShared(existsSync(ANSWERS))
const files = shared.isMet
  ? readdirSync(ANSWERS).filter((name) => name !== 'manifest.json')
  : ['chat.none.json']

let provider: Server
let service: Affidavit
const proxies: Awaited<ReturnType<typeof serveProxy>>[] = []
/** Where an SDK reads: the recording itself, the gateway, and the proxy of both kinds. */
const places: Record<string, string> = {}
const folder = mkdtempSync(path.join(tmpdir(), 'affidavit-recorded-'))

beforeAll(async () => {
  if (!shared.isMet) return
  provider = createServer(async (request, response) => {
    let body = ''
    for await (const packet of request) body += packet
    const name = path.basename(JSON.parse(body || '{}').model ?? 'manifest.json')
    const failure = name === 'two-choices' ? REFUSED : FAILURES[name]
    if (failure !== undefined) {
      response.writeHead(failure.status, { 'content-type': failure.type }).end(failure.body)
      return
    }
    const text = readFileSync(path.join(ANSWERS, name), 'utf8')
    const isStream = name.endsWith('.chunks.txt')
    response.setHeader('content-type', isStream ? 'text/event-stream' : 'application/json')
    response.end(isStream ? eventsOf(name, text) : text)
  })
  await new Promise<void>((resolve) => provider.listen(0, '127.0.0.1', resolve))
  const origin = `http://127.0.0.1:${(provider.address() as AddressInfo).port}`
  const entry = {
    name: 'recorded',
    origin,
    path: '/v1/chat/completions',
    models: ['recorded/*'],
    endpoints: { responses: { path: '/v1/responses' }, messages: { path: '/v1/messages' } },
  }
  writeFileSync(path.join(folder, 'providers.json'), JSON.stringify([entry]))
  service = await startAffidavit({
    logLevel: 'warn',
    variables: {
      PROVIDERS_FILE: path.join(folder, 'providers.json'),
      KEEP_REFUSED: path.join(folder, 'refused'),
    },
  })
  const { connect: expected } = await readExpectedService(service)
  const { url, apiKey } = service
  for (const encrypt of [true, false]) {
    const affidavit = await connect({ url, apiKey, ...expected, encrypt })
    proxies.push(await serveProxy({ affidavit, port: 0, onCall: () => undefined }))
  }
  places.recording = `${origin}/v1`
  places.gateway = `${url}/v1/verified`
  places['encrypting proxy'] = proxies[0]?.baseURL ?? ''
  places['plain proxy'] = proxies[1]?.baseURL ?? ''
}, 120_000)

afterAll(async () => {
  if (!shared.isMet) return
  for (const proxy of proxies) await proxy.close()
  await service.stop()
  provider.close()
  await rm(folder, { recursive: true })
})

const event = (data: Readonly<Record<string, unknown>>) =>
  `event: ${data.type}\ndata: ${JSON.stringify(data)}\n\n`
const EVENTS = 'text/event-stream'
const TOO_LONG = {
  code: 'context_length_exceeded',
  message: 'The prompt is too long',
  param: 'input',
}
const OVERLOADED = {
  type: 'error',
  error: { type: 'overloaded_error', message: 'Overloaded' },
} as const
const usage = { input_tokens: 1, output_tokens: 1 }
const BEGUN = { id: 'm_1', type: 'message', role: 'assistant', model: 'm', content: [], usage }
const PIECE = [
  event({ type: 'message_start', message: BEGUN }),
  event({ type: 'content_block_start', index: 0, content_block: { type: 'text', text: '' } }),
  event({ type: 'content_block_delta', index: 0, delta: { type: 'text_delta', text: 'Hel' } }),
].join('')

/** Failures of a provider, by the name of a model, and what every place answers. */
const TWO_CHOICES = ['a', 'b']
  .map((content) => ({ index: 0, delta: { role: 'assistant', content }, finish_reason: 'stop' }))
  .map((choice) => event({ id: 'c', object: 'chat.completion.chunk', choices: [choice] }))
  .join('')
const REFUSED = { status: 200, type: EVENTS, body: TWO_CHOICES }

const FAILURES: Readonly<
  Record<
    string,
    {
      readonly status: number
      readonly type: string
      readonly body: string
      readonly seen: readonly [path: string, status: number, text: RegExp]
    }
  >
> = {
  // https://github.com/unslothai/unsloth/issues/10938
  'too-long-first': {
    status: 200,
    type: EVENTS,
    body: event({ type: 'error', ...TOO_LONG }),
    seen: ['/responses', 200, /event: response\.failed\n.*"code":"context_length_exceeded"/],
  },
  'too-long-failed': {
    status: 200,
    type: EVENTS,
    body: event({
      type: 'response.failed',
      response: { id: 'r_1', object: 'response', status: 'failed', model: 'm', error: TOO_LONG },
    }),
    seen: ['/responses', 200, /event: response\.failed\n.*"code":"context_length_exceeded"/],
  },
  // https://github.com/maximhq/bifrost/issues/4413
  'too-long-400': {
    status: 400,
    type: 'application/json',
    body: JSON.stringify({ error: { ...TOO_LONG, type: 'invalid_request_error' } }),
    seen: ['/responses', 400, /"param":"input","code":"context_length_exceeded"/],
  },
  // https://github.com/anthropics/claude-code/issues/2919
  'busy-529': {
    status: 529,
    type: 'application/json',
    body: JSON.stringify(OVERLOADED),
    seen: ['/messages', 529, /"type":"overloaded_error"/],
  },
  'busy-first': {
    status: 200,
    type: EVENTS,
    body: event(OVERLOADED),
    seen: ['/messages', 529, /"type":"overloaded_error"/],
  },
  // https://github.com/openclaw/openclaw/issues/49079
  'busy-amid': {
    status: 200,
    type: EVENTS,
    body: PIECE + event(OVERLOADED),
    seen: ['/messages', 200, /message_start[\s\S]*event: error\n.*"type":"overloaded_error"/],
  },
}

/** The lines of a recording as a provider of its API sends them. */
function eventsOf(name: string, text: string): string {
  const lines = text.split('\n').filter((line) => line.trim() !== '')
  if (name.startsWith('chat.'))
    return [...lines, '[DONE]'].map((line) => `data: ${line}\n\n`).join('')
  return lines.map((line) => `event: ${JSON.parse(line).type}\ndata: ${line}\n\n`).join('')
}

/** What an SDK reads at the end, or the error that it throws. */
async function read(name: string, baseURL: string): Promise<unknown> {
  const isStream = name.endsWith('.chunks.txt')
  const headers = { 'fine-tune-authorization': 'Bearer my-provider-key' }
  const model = `recorded/${name}`
  const apiKey = service.apiKey
  const messages = [{ role: 'user' as const, content: 'Hi' }]
  const options = { maxRetries: 0, apiKey, defaultHeaders: headers }
  try {
    if (name.startsWith('messages.')) {
      const root = baseURL.replace(/\/v1$/, '')
      const at = baseURL === places.gateway ? `${baseURL}/anthropic` : root
      const anthropic = new Anthropic({ ...options, baseURL: at, authToken: null })
      const asked = { model, max_tokens: 100, messages }
      return isStream
        ? await anthropic.messages.stream(asked).finalMessage()
        : await anthropic.messages.create(asked)
    }
    const openai = new OpenAI({ ...options, baseURL })
    if (name.startsWith('responses.'))
      return isStream
        ? await openai.responses.stream({ model, input: 'Hi' }).finalResponse()
        : await openai.responses.create({ model, input: 'Hi' })
    return isStream
      ? await openai.chat.completions.stream({ model, messages }).finalChatCompletion()
      : await openai.chat.completions.create({ model, messages })
  } catch (error) {
    return { error: (error as Error).message }
  }
}

/** The texts, reasoning, tools and inputs of an answer, without what a gateway may name differently. */
function contentOf(answer: unknown): unknown {
  const { choices, output, content, error } = answer as Record<string, unknown>
  if ((error ?? null) !== null) return { error }
  return cleaned(choices ?? output ?? content ?? { error })
}

/**
 * The SDK of chats keeps only the last piece of `reasoning_content`, which `ai` joins. A provider
 * can encrypt its reasoning again for the last event.
 */
const UNSAID = [
  'id',
  'index',
  'status',
  'logprobs',
  'parsed',
  'parsed_arguments',
  'obfuscation',
  'reasoning_content',
  'encrypted_content',
]

function cleaned(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(cleaned)
  if (typeof value !== 'object' || value === null) return value
  const kept = Object.entries(value)
    .filter(([name]) => !UNSAID.includes(name))
    .map(([name, member]) => [name, cleaned(member)] as const)
    .filter(([, member]) => member !== null && member !== undefined && member !== '')
    .filter(([, member]) => !(Array.isArray(member) && member.length === 0))
  return Object.fromEntries(kept.toSorted(([one], [other]) => (one < other ? -1 : 1)))
}

/** Text, reasoning and tool calls of a chat, as `ai` reads them. */
async function readByAi(name: string, baseURL: string): Promise<unknown> {
  const headers = { 'fine-tune-authorization': 'Bearer my-provider-key' }
  const provider = createOpenAICompatible({ name: 'a', baseURL, apiKey: service.apiKey, headers })
  const asked = { model: provider(`recorded/${name}`), prompt: 'Hi', maxRetries: 0 }
  const result = name.endsWith('.chunks.txt')
    ? streamText({ ...asked, onError: () => undefined })
    : await generateText(asked)
  try {
    const [text, reasoning, calls] = [
      await result.text,
      await result.reasoningText,
      await result.toolCalls,
    ]
    return { text, reasoning, calls: calls.map(({ toolName, input }) => ({ toolName, input })) }
  } catch (error) {
    return { error: (error as Error).message }
  }
}

/** Content and tool calls of a chat, as LangChain reads them. */
async function readByLangChain(name: string, baseURL: string): Promise<unknown> {
  const defaultHeaders = { 'fine-tune-authorization': 'Bearer my-provider-key' }
  const chat = new ChatOpenAI({
    model: `recorded/${name}`,
    apiKey: service.apiKey,
    maxRetries: 0,
    configuration: { baseURL, defaultHeaders },
  })
  try {
    const chunks: AIMessageChunk[] = []
    if (name.endsWith('.chunks.txt'))
      for await (const chunk of await chat.stream('Hi')) chunks.push(chunk)
    const [first, ...others] = chunks
    const joined = first && others.reduce((message, chunk) => message.concat(chunk), first)
    const { content, tool_calls = [] } = joined ?? (await chat.invoke('Hi'))
    return { content, calls: tool_calls.map(({ name: called, args }) => ({ called, args })) }
  } catch (error) {
    return { error: (error as Error).message }
  }
}

/** Recordings that an SDK cannot read directly: it fails, and reads what the enclave settles. */
const isError = (reading: unknown) => Object.hasOwn(reading as object, 'error')

/** The status and the text of a streamed call at a place. */
async function ask(place: string, model: string, route: string) {
  const isMessages = route === '/messages'
  const base = places[place] ?? ''
  const root = place === 'gateway' ? `${base}/anthropic` : base
  const reply = await fetch(`${isMessages ? root : base}${route}`, {
    method: 'POST',
    headers: {
      authorization: `Bearer ${service.apiKey}`,
      'content-type': 'application/json',
      'fine-tune-authorization': 'Bearer my-provider-key',
    },
    body: JSON.stringify({
      model: `recorded/${model}`,
      stream: true,
      ...(route !== '/responses'
        ? { max_tokens: 9, messages: [{ role: 'user', content: 'Hi' }] }
        : { input: 'Hi' }),
    }),
  })
  return { status: reply.status, text: await reply.text() }
}

describe.runIf(shared.isMet)('failures of a provider', () => {
  it.each(Object.entries(FAILURES))(
    shared.title('every place tells of %s in the form of its API'),
    async (model, { seen: [route, status, text] }) => {
      for (const place of ['gateway', 'encrypting proxy', 'plain proxy']) {
        const reply = await ask(place, model, route)
        expect({ place, ...reply }).toMatchObject({ place, status })
        expect(reply.text.replaceAll(/"(affidavit|request_id)":/g, '')).toMatch(text)
        expect(reply.text).not.toContain('invalid_request_error"}')
      }
    },
  )
})

describe.runIf(shared.isMet)('a stream that the enclave refuses', () => {
  it(shared.title('a refused stream is kept as it came, where KEEP_REFUSED says so'), async () => {
    const before = listKept()
    const { text } = await ask('gateway', 'two-choices', '/chat/completions')
    expect(text).toContain('Readers would not understand the answer of recorded')
    await expect.poll(() => listKept().length).toBe(before.length + 1)
    const [name = ''] = listKept().filter((file) => !before.includes(file))
    expect(name).toMatch(/-[a-z_]+\.txt$/)
    expect(readFileSync(path.join(folder, 'refused', name), 'utf8')).toBe(TWO_CHOICES)
  })
})

function listKept(): readonly string[] {
  const refused = path.join(folder, 'refused')
  return existsSync(refused) ? readdirSync(refused) : []
}

describe.runIf(shared.isMet)('recorded answers', () => {
  it.each(files)(shared.title('SDKs read the same of %s at every place'), async (name) => {
    const { recording = '', ...others } = places
    const direct = contentOf(await read(name, recording))
    const isProvidersError = name.includes('openai-error')
    for (const [place, baseURL] of Object.entries(others)) {
      const reading = contentOf(await read(name, baseURL))
      if (isError(direct as object)) expect(isError(reading as object)).toBe(isProvidersError)
      else expect({ [place]: reading }).toEqual({ [place]: direct })
      if (!name.startsWith('chat.')) continue
      // LangChain loses the call of a stream that OpenAI's SDK cannot read.
      const readers = isError(direct as object) ? [readByAi] : [readByAi, readByLangChain]
      for (const readBy of readers) {
        const ofRecording = await readBy(name, recording)
        expect({ [place]: await readBy(name, baseURL) }).toEqual({ [place]: ofRecording })
      }
    }
  })
})
