import { randomBytes } from 'node:crypto'
import { once } from 'node:events'
import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { createServer, type Server, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest'
import { type Affidavit, startAffidavit } from '../support/affidavit.ts'
import { secretOf } from '../support/key-secret.ts'
import { type OtlpCollector, startOtlpCollector } from '../support/otlp-collector.ts'
import { createMeasuredNode } from '../support/register-node.ts'
import { answerWith, connectScriptedNode } from '../support/scripted-node.ts'

/**
 * The texts have no form that a pattern could match: only a text that was never written is not
 * found.
 */
const plant = (what: string) => `${what}${randomBytes(12).toString('hex')}`
const PROMPT = plant('prompt')
const ANSWER = plant('answer')
const CALLERS_CREDENTIAL = plant('callerscredential')
const OPERATORS_CREDENTIAL = plant('operatorscredential')
const WRONG_KEY = plant('wrongkey')
/** This id is logged, to show that the search reads what was written. */
const REQUEST_ID = plant('requestid')

const CHAT = '/v1/chat/completions'
const VERIFIED = '/v1/verified/chat/completions'

let provider: Server
let folder: string
let service: Affidavit
let collector: OtlpCollector
/** Made over the API, because the banner shows the first key. */
let apiKey: string

beforeAll(async () => {
  provider = createServer((request, response) => void serveProvider(request, response)).listen(
    0,
    '127.0.0.1',
  )
  await once(provider, 'listening')
  folder = await mkdtemp(join(tmpdir(), 'affidavit-redaction-'))
  const providersFile = join(folder, 'providers.json')
  const origin = `http://127.0.0.1:${(provider.address() as AddressInfo).port}`
  const planted = { name: 'openai', origin, path: '/', models: ['planted/*'] }
  await writeFile(providersFile, JSON.stringify([planted]))
  collector = await startOtlpCollector()
  service = await startAffidavit({
    logLevel: 'debug',
    variables: {
      OTEL_EXPORTER_OTLP_ENDPOINT: collector.url,
      METRICS_PORT: '0',
      PROVIDERS_FILE: providersFile,
      OPENAI_API_KEY: OPERATORS_CREDENTIAL,
    },
  })
  const made = await call(
    '/v1/dashboard/keys',
    { name: 'planted', scopes: ['inference', 'nodes'] },
    { key: service.apiKey },
  )
  apiKey = JSON.parse(made).key
})
afterAll(async () => {
  await service?.stop()
  provider?.close()
  await collector?.close()
  await rm(folder, { recursive: true, force: true })
})

/** A provider that quotes its input wherever it can. */
async function serveProvider(
  request: AsyncIterable<Buffer> & { readonly headers: Readonly<Record<string, unknown>> },
  response: ServerResponse,
): Promise<void> {
  const parts: Buffer[] = []
  for await (const part of request) parts.push(part)
  const text = Buffer.concat(parts).toString()
  const { model } = JSON.parse(text)
  const quote = `${request.headers.authorization} ${text} ${ANSWER}`
  const refuse = (status: number) => {
    response.writeHead(status, { 'content-type': 'application/json' })
    response.end(JSON.stringify({ error: { message: quote, code: 'quoted' } }))
  }
  switch (model) {
    case 'planted/ok':
      response
        .writeHead(200, { 'content-type': 'application/json' })
        .end(JSON.stringify(completion(model)))
      return
    case 'planted/stream':
    case 'planted/cut': {
      response.writeHead(200, { 'content-type': 'text/event-stream' })
      response.write(`data: ${JSON.stringify(chunk(model))}\n\n`)
      if (model === 'planted/cut') setTimeout(() => response.destroy(), 50)
      else response.end('data: [DONE]\n\n')
      return
    }
    case 'planted/garbage':
      response.writeHead(200, { 'content-type': 'application/json' }).end(`{"choices": ${quote}`)
      return
    case 'planted/hang':
      return
    default:
      refuse(Number(String(model).replace('planted/', '')))
  }
}

function completion(model: string) {
  const message = { role: 'assistant', content: ANSWER }
  const choices = [{ index: 0, message, finish_reason: 'stop' }]
  return { id: 'x', object: 'chat.completion', created: 1, model, choices }
}

function chunk(model: string) {
  const choices = [
    { index: 0, delta: { role: 'assistant', content: ANSWER }, finish_reason: 'stop' },
  ]
  return { id: 'x', object: 'chat.completion.chunk', created: 1, model, choices }
}

/** The text of the answer, with any status. */
async function call(
  path: string,
  body: unknown,
  { key = apiKey, headers = {}, signal }: CallOptions = {},
): Promise<string> {
  const reply = await fetch(service.url + path, {
    method: body === null ? 'GET' : 'POST',
    headers: { authorization: `Bearer ${key}`, 'content-type': 'application/json', ...headers },
    ...(body === null ? {} : { body: typeof body === 'string' ? body : JSON.stringify(body) }),
    signal: signal ?? AbortSignal.timeout(CALL_TIMEOUT_MS),
  })
  return await reply.text()
}

const CALL_TIMEOUT_MS = 20_000

type CallOptions = {
  readonly key?: string
  readonly headers?: Readonly<Record<string, string>>
  readonly signal?: AbortSignal
}

const chat = (model: string, more: object = {}) => ({
  model,
  messages: [{ role: 'user', content: PROMPT }],
  ...more,
})

const OWN = { 'fine-tune-authorization': `Bearer ${CALLERS_CREDENTIAL}` }

/** All kinds of calls, valid and invalid. */
async function callEverything(): Promise<void> {
  for (const headers of [{}, OWN]) {
    expect(await call(VERIFIED, chat('planted/ok'), { headers })).toContain(ANSWER)
    expect(await call(VERIFIED, chat('planted/stream', { stream: true }), { headers })).toContain(
      ANSWER,
    )
    for (const model of ['cut', 'garbage', '400', '401', '403', '429', '500', '503'])
      for (const stream of [false, true])
        await call(VERIFIED, chat(`planted/${model}`, { stream }), { headers })
  }
  await call(VERIFIED, chat('planted/hang'), { signal: AbortSignal.timeout(300) }).catch(() => null)
  expect(await call(CHAT, chat('demo/echo'))).toContain(PROMPT)
  expect(await call(CHAT, chat('demo/echo', { stream: true }))).toContain('[DONE]')
  for (const path of [VERIFIED, CHAT]) {
    for (const model of ['nothing-serves-this', PROMPT]) await call(path, chat(model))
    await call(
      path,
      chat('demo/echo', { [PROMPT]: 1, user: 1, temperature: PROMPT, tools: [PROMPT] }),
    )
    await call(path, `{"model":"${PROMPT}", "messages": "${PROMPT}`)
    await call(path, { model: 'm', messages: [{ role: PROMPT, content: PROMPT }] })
    await call(path, chat('planted/ok'), { key: WRONG_KEY })
    await call(path, chat('planted/ok'), { headers: { 'content-type': `text/${PROMPT}` } })
    await call(path, chat('planted/ok'), { headers: { 'idempotency-key': plant('once') } })
  }
  await call('/v1/embeddings', { model: 'demo/embedding', input: [PROMPT, 1] })
  await call('/v1/embeddings', { model: 'demo/embedding', input: PROMPT })
  await call('/v1/tool/search', { query: PROMPT }, { headers: { 'x-request-id': REQUEST_ID } })
  await call('/v1/images/generations', { model: 'demo/image', prompt: PROMPT })
  await call(`/v1/models?q=${PROMPT}&key=${apiKey}`, null)
  const list = await call(`${VERIFIED}?limit=100`, null)
  expect(list).toContain(ANSWER)
  const { hash } = JSON.parse(list).completions[0]
  for (const path of [`${VERIFIED}/${hash}`, `${VERIFIED}/${hash}/evidence`, '/docs', '/readyz'])
    await call(path, null)
  await callNode()
}

/** Calls a node that quotes its input too, and a node with an invalid key. */
async function callNode(): Promise<void> {
  const model = 'planted/node'
  const { url } = service
  const nodeId = await createMeasuredNode({ url, key: apiKey }, [model])
  await expect(connectScriptedNode({ url, key: WRONG_KEY, nodeId, model })).rejects.toThrow()
  const node = await connectScriptedNode({
    url,
    key: apiKey,
    nodeId,
    model,
    answer: (run, self) =>
      run.chat_request.user === 'fail'
        ? self.sendRun(run.id, { error: { message: `${PROMPT} ${ANSWER} ${apiKey}` }, status: 3 })
        : answerWith(ANSWER)(run, self),
  })
  const isServed = async () => expect(await call(CHAT, chat(model))).toContain(ANSWER)
  await vi.waitFor(isServed, { timeout: 20_000, interval: 200 })
  expect(await call(CHAT, chat(model, { stream: true }))).toContain(ANSWER)
  for (const stream of [false, true]) await call(CHAT, chat(model, { stream, user: 'fail' }))
  node.send({ [PROMPT]: ANSWER, id: PROMPT })
  node.socket.send(`${PROMPT} ${ANSWER}`)
  await node.close()
}

describe('a reader of what the service writes', () => {
  let metrics: string
  beforeAll(async () => {
    await callEverything()
    metrics = await (await fetch(service.metricsUrl)).text()
    await vi.waitFor(() => expect(collector.received()).toContain('planted/node'), {
      timeout: 30_000,
    })
  })

  it('the log and the metrics of the service show that calls were made', () => {
    const { stderr } = service.output()
    expect(stderr).toContain('"level":"debug"')
    expect(linesWith(stderr, REQUEST_ID)).toHaveLength(1)
    expect(stderr.split(VERIFIED).length).toBeGreaterThan(40)
    expect(metrics).toMatch(
      /affidavit_calls_total\{method="POST",route="\/v1\/verified\/chat\/completions",status="200"/,
    )
  })

  it.each([
    ['the API key', () => apiKey],
    ['the secret part of the API key', () => secretOf(apiKey)],
    ['a key that was not valid', () => WRONG_KEY],
    ["the caller's provider credential", () => CALLERS_CREDENTIAL],
    ["the operator's provider credential", () => OPERATORS_CREDENTIAL],
    ['a prompt', () => PROMPT],
    ['an answer', () => ANSWER],
  ])('%s is found nowhere in what the service writes', (_, read) => {
    const secret = read()
    expect(secret.length).toBeGreaterThan(20)
    const forms = [
      secret,
      encodeURIComponent(secret),
      ...base64Forms(secret),
      Buffer.from(secret).toString('hex'),
    ]
    const { stdout, stderr } = service.output()
    for (const [where, text] of Object.entries({
      stdout,
      stderr,
      metrics,
      traces: collector.received(),
    }))
      for (const form of forms) expect([where, linesWith(text, form)]).toEqual([where, []])
  })

  it('the key that the banner shows is found nowhere in the log', () => {
    const { stderr } = service.output()
    expect(linesWith(stderr, service.apiKey)).toEqual([])
  })
})

const linesWith = (text: string, secret: string) =>
  text.split('\n').filter((line) => line.includes(secret))

/**
 * The part of its base64 that does not depend on the text before and after it, at each of the three
 * offsets.
 */
function base64Forms(secret: string): readonly string[] {
  return [0, 1, 2].map((offset) => {
    const text = Buffer.concat([Buffer.alloc(offset), Buffer.from(secret)]).toString('base64')
    return text.slice(4, -4)
  })
}
