import { once } from 'node:events'
import { mkdtempSync, readFileSync } from 'node:fs'
import { rm } from 'node:fs/promises'
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import Anthropic from '@anthropic-ai/sdk'
import OpenAI from 'openai'
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest'
import { DEMANDS_HEADER } from '#attestation/dialects/call-request.ts'
import { type Affidavit, connect, type Proof } from '#client/index.ts'
import { type CheckingProxy, serveProxy } from '#src/cli/proxy/serve-proxy.ts'
import { readExpectedService } from '../support/expected-service.ts'
import { startProxyProgram } from '../support/proxy-program.ts'
import { type SharedAffidavit, useAffidavit } from '../support/use-affidavit.ts'

/**
 * How the next answer is lost. The real gateway gets the call in each case, so its enclave makes
 * the completion.
 */
type Loss = 'none' | 'cut' | 'error 500'

let service: SharedAffidavit
/** Of the server in between. */
let url: string
let client: Affidavit
let proxy: CheckingProxy
let loss: Loss = 'none'
/** Of the calls that the server in between received. */
const nonces: string[] = []
const proofs: Proof[] = []

const between = createServer((request, response) => {
  pass(request, response).catch(() => response.destroy())
})

async function pass(request: IncomingMessage, response: ServerResponse): Promise<void> {
  const parts: Buffer[] = []
  for await (const part of request) parts.push(part)
  const body = Buffer.concat(parts)
  const { host, connection, 'transfer-encoding': coding, ...headers } = request.headers
  const method = request.method ?? 'GET'
  const reply = await fetch(service.url + request.url, {
    method,
    headers: headers as Record<string, string>,
    ...(method === 'GET' ? {} : { body }),
  })
  const text = await reply.text()
  const type = { 'content-type': reply.headers.get('content-type') ?? '' }
  if (method === 'GET') return void response.writeHead(reply.status, type).end(text)
  expect(reply.status).toBe(200)
  nonces.push(nonceOf(headers[DEMANDS_HEADER], body))
  const current = loss
  loss = 'none'
  switch (current) {
    case 'none':
      return void response.writeHead(200, type).end(text)
    case 'cut':
      return void response.destroy()
    case 'error 500': {
      const error = JSON.stringify({ error: { message: 'no', type: 'api_error' } })
      const repeat = { 'content-type': 'application/json', 'x-should-retry': 'true' }
      response.writeHead(500, repeat).end(error)
    }
  }
}

function nonceOf(header: string | string[] | undefined, body: Buffer): string {
  const demands =
    typeof header === 'string'
      ? JSON.parse(Buffer.from(header, 'base64url').toString())
      : JSON.parse(String(body)).affidavit
  return demands.nonce
}

beforeAll(async () => {
  service = await useAffidavit()
  between.listen(0, '127.0.0.1')
  await once(between, 'listening')
  url = `http://127.0.0.1:${(between.address() as AddressInfo).port}`
  const { connect: expected } = await readExpectedService(service)
  client = await connect({
    url,
    ...expected,
    // The server in between reads the nonces.
    encrypt: false,
    onProof: (proof) => void proofs.push(proof),
  })
  proxy = await serveProxy({ affidavit: client, port: 0, onCall: () => undefined })
})
afterAll(async () => {
  await proxy.close()
  between.closeAllConnections()
  between.close()
})
beforeEach(() => {
  nonces.length = 0
  proofs.length = 0
})

let prompts = 0
/** Gives the call of each API, made by its official SDK. Each call may be repeated twice. */
function openCalls(through: 'client' | 'proxy') {
  const { apiKey } = service
  const ours = through === 'client' ? { fetch: client.fetch } : {}
  const baseURL = through === 'client' ? client.baseURL : proxy.baseURL
  const anthropicURL =
    through === 'client' ? client.anthropicBaseURL : proxy.baseURL.replace(/\/v1$/, '')
  const openai = new OpenAI({ baseURL, apiKey, ...ours })
  const anthropic = new Anthropic({ baseURL: anthropicURL, apiKey, authToken: null, ...ours })
  const content = `repeat ${++prompts}`
  const model = 'demo/echo'
  const messages = [{ role: 'user' as const, content }]
  return {
    'chat completions': () => openai.chat.completions.create({ model, messages }),
    Responses: () => openai.responses.create({ model, input: content }),
    Messages: () => anthropic.messages.create({ model, messages, max_tokens: 100 }),
  } satisfies Record<string, () => Promise<unknown>>
}

const attempt = () => proofs.at(-1)?.checks.find(({ name }) => name === 'attempt')
const TWICE = {
  outcome: 'not checked',
  detail: 'asked 2 times, sent 2 times; 1 without an answer, which may have been made',
}
const APIS = ['chat completions', 'Responses', 'Messages'] as const

describe.each(APIS)('an official SDK whose gateway loses an answer of %s', (api) => {
  it('an SDK with the client repeats a call that was cut, with the same nonce, and the proof says so', async () => {
    loss = 'cut'
    await openCalls('client')[api]()
    expect(nonces).toHaveLength(2)
    expect(new Set(nonces).size).toBe(1)
    expect(attempt()).toMatchObject(TWICE)
  })

  it.each([
    ['client', 'error 500'],
    ['proxy', 'error 500'],
    ['proxy', 'cut'],
  ] as const)(
    'an SDK with the %s sends no second request after "%s", and a repeat by its program is counted',
    async (through, current) => {
      const call = openCalls(through)[api]
      loss = current
      await expect(call()).rejects.toMatchObject({ status: current === 'cut' ? 502 : 500 })
      expect([nonces.length, proofs.length]).toEqual([1, 0])
      await call()
      expect(nonces).toHaveLength(2)
      expect(new Set(nonces).size).toBe(1)
      expect(attempt()).toMatchObject(TWICE)
    },
  )
})

it('a proxy that crashed after a lost call states its request in the session when it starts again', async () => {
  const folder = mkdtempSync(join(tmpdir(), 'affidavit-lost-'))
  const file = join(folder, 'run.json')
  const start = () =>
    startProxyProgram({ url, policyFile: service.policyFile }, ['--no-encrypt', '--session', file])
  const messages = [{ role: 'user' as const, content: `lost ${++prompts}` }]
  const ask = ({ baseURL }: Pick<CheckingProxy, 'baseURL'>, headers = {}) =>
    new OpenAI({ baseURL, apiKey: service.apiKey }).chat.completions.create(
      { model: 'demo/echo', messages },
      { headers },
    )
  const crashed = await start()
  loss = 'error 500'
  await expect(ask(crashed)).rejects.toMatchObject({ status: 500 })
  await crashed.stop('SIGKILL')
  const again = await start()
  await ask(again, { 'affidavit-last': 'true' })
  await again.stop()
  expect(JSON.parse(readFileSync(file, 'utf8')).unanswered).toEqual([
    { n: 0, notary: client.notaries[0]?.notary, times: 1 },
  ])
  await rm(folder, { recursive: true })
})
