import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import Anthropic from '@anthropic-ai/sdk'
import OpenAI from 'openai'
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest'
import { DEMANDS_HEADER } from '#attestation/dialects/call-request.ts'
import { AffidavitError } from '#client/errors.ts'
import { type Affidavit as Client, type ConnectOptions, connect } from '#client/index.ts'
import { type Affidavit, startAffidavit } from '../support/affidavit.ts'
import {
  ATTESTED_MODEL,
  type AttestedTestProvider,
  attestKey,
  startAttestedProvider,
} from '../support/attested-provider.ts'
import { createAuthority } from '../support/certificates.ts'
import { readExpectedService } from '../support/expected-service.ts'
import {
  type Attack,
  type GatewayAnswer,
  type HostileGateway,
  startHostileGateway,
} from '../support/hostile-gateway.ts'

let provider: AttestedTestProvider
let service: Affidavit
let folder = ''
let hostile: HostileGateway
let options: ConnectOptions
/** Evidence that the policy accepts: of the provider's first key. */
let honest: ReturnType<typeof attestKey>

beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'affidavit-attested-'))
  const authority = await createAuthority()
  provider = await startAttestedProvider(authority)
  const entry = {
    name: 'attested',
    origin: provider.origin,
    path: '/v1/chat/completions',
    models: [ATTESTED_MODEL],
    endpoints: { responses: { path: '/v1/responses' }, messages: { path: '/v1/messages' } },
  }
  await writeFile(join(folder, 'providers.json'), JSON.stringify([entry]))
  await writeFile(join(folder, 'ca.pem'), authority.certificate)
  service = await startAffidavit({
    logLevel: 'warn',
    variables: {
      PROVIDERS_FILE: join(folder, 'providers.json'),
      PROVIDER_CA_FILE: join(folder, 'ca.pem'),
    },
  })
  provider.target = service.providerUrl
  hostile = await startHostileGateway(service.url)
  honest = attestKey({ origin: provider.origin, key: provider.keys[0] })
  const { connect: expected } = await readExpectedService(service)
  const policy = { ...expected.policy, providers: honest.policy }
  options = { url: hostile.url, apiKey: service.apiKey, policy }
})
afterAll(async () => {
  await hostile.stop()
  await service.stop()
  provider.close()
  await rm(folder, { recursive: true, force: true })
})
beforeEach(() => hostile.set(listing(honest.digest, honest.bytes)))

const answer = (body: GatewayAnswer['body'], after: GatewayAnswer['after'] = 'end') => ({
  status: 200,
  headers: { 'content-type': 'application/json' },
  body,
  after,
})

/** Lists the provider with this evidence, and gives these bytes for each evidence. */
function listing(digest: string, given: GatewayAnswer['body'], more: object = {}): Attack {
  const entry = { id: 'attested', origin: provider.origin, kind: 'nitro', evidence: { digest } }
  const list = JSON.stringify({ object: 'list', data: [{ ...entry, ...more }] })
  return {
    meets: 'providers',
    answer: ({ path }) => answer(path === '/v1/providers' ? list : given),
  }
}

let prompts = 0
const newPrompt = () => `secret prompt ${++prompts}`
const isReceived = (prompt: string) => provider.received.some((text) => text.includes(prompt))
const sdkOptions = ({ fetch }: Pick<Client, 'fetch'>) => ({
  apiKey: service.apiKey,
  fetch,
  maxRetries: 0,
  defaultHeaders: { 'fine-tune-authorization': 'Bearer key-of-the-provider' },
})

const CALLS = {
  chat: (client: Client, content: string, fetch = client.fetch) =>
    new OpenAI({ ...sdkOptions({ fetch }), baseURL: client.baseURL }).chat.completions.create({
      model: ATTESTED_MODEL,
      messages: [{ role: 'user', content }],
    }),
  responses: (client: Client, input: string, fetch = client.fetch) =>
    new OpenAI({ ...sdkOptions({ fetch }), baseURL: client.baseURL }).responses.create({
      model: ATTESTED_MODEL,
      input,
    }),
  messages: (client: Client, content: string, fetch = client.fetch) =>
    new Anthropic({
      ...sdkOptions({ fetch }),
      authToken: null,
      baseURL: client.anthropicBaseURL,
    }).messages.create({
      model: ATTESTED_MODEL,
      max_tokens: 100,
      messages: [{ role: 'user', content }],
    }),
}
const DIALECTS = Object.keys(CALLS) as (keyof typeof CALLS)[]

async function codeOf(call: Promise<unknown>): Promise<string> {
  return await call.then(
    () => 'given',
    (fault) => {
      const cause = fault instanceof AffidavitError ? fault : fault.cause
      return cause instanceof AffidavitError ? cause.code : String(fault.code ?? fault)
    },
  )
}

for (const encrypt of [false, true])
  describe(`a client with policies, ${encrypt ? 'encrypted' : 'not encrypted'}`, () => {
    it.each(DIALECTS)(
      'an attested provider answers %s, and the receipt has its key',
      async (name) => {
        const client = await connect({ ...options, encrypt })
        expect(client.providers).toMatchObject([
          { provider: 'attested', keys: [provider.keys[0]], facts: { tee: 'Nitro' } },
        ])
        expect(client.refusedProviders).toEqual([])
        const prompt = newPrompt()
        expect(JSON.stringify(await CALLS[name](client, prompt))).toContain(prompt)
        expect(isReceived(prompt)).toBe(true)
        const [proof] = client.proofs
        expect(proof?.receipt.provider.tls?.spki_sha256).toBe(provider.keys[0])
        expect(String(proof)).toMatch(/^passed +provider key +[0-9a-f]{64}$/m)
      },
    )

    it.each(DIALECTS)('a provider that changed its key gets no byte of %s', async (name) => {
      const client = await connect({ ...options, encrypt })
      const before = provider.received.join('')
      await provider.useKey(1)
      const code = await codeOf(CALLS[name](client, newPrompt()))
      await provider.useKey(0)
      expect(code).toContain('provider_key_mismatch')
      expect(provider.received.join('')).toBe(before)
      expect(await codeOf(CALLS[name](client, newPrompt()))).toBe('given')
    })
  })

describe('affidavit proxy --policy with providers', () => {
  const CLI = join(import.meta.dirname, '../../src/cli/main.ts')

  it('the proxy prints which provider gets calls, and sends nothing to another key', async () => {
    const other = attestKey({ origin: 'https://other.example', key: provider.keys[1] })
    const file = join(folder, 'policy.json')
    const { enclaves } = options.policy
    await writeFile(file, JSON.stringify({ enclaves, providers: [honest.policy, other.policy] }))
    const words = ['--url', hostile.url, '--policy', file, '--port', '0']
    const child = spawn(process.execPath, [CLI, 'proxy', ...words])
    const exited = once(child, 'exit')
    let output = ''
    for (const stream of [child.stdout, child.stderr])
      stream.setEncoding('utf8').on('data', (text: string) => (output += text))
    await expect.poll(() => output, { timeout: 30_000 }).toMatch(/Proofs are not kept/)
    expect(output).toContain(`Attested provider: attested at ${provider.origin}: Nitro, code by `)
    expect(output).toContain('weights unknown, until ')
    expect(output).toContain('under a development root')
    expect(output).toContain(
      'Gets no call: a provider at https://other.example: the gateway does not list',
    )
    const [, baseURL = ''] = /Checked answers at (\S+),/.exec(output) ?? []
    const through = { baseURL, anthropicBaseURL: '', fetch } as unknown as Client
    expect(await codeOf(CALLS.chat(through, newPrompt()))).toBe('given')
    await provider.useKey(1)
    const before = provider.received.join('')
    expect(await codeOf(CALLS.chat(through, newPrompt()))).toBe('provider_key_mismatch')
    expect(provider.received.join('')).toBe(before)
    await provider.useKey(0)
    child.kill('SIGTERM')
    expect(await exited).toEqual([0, null])
  })
})

describe('a gateway that lies about providers', () => {
  it('a gateway that drops the demand for keys is found by the request hash', async () => {
    const client = await connect({ ...options, encrypt: false })
    hostile.set({
      meets: 'completions',
      answer: ({ ask, body }) => {
        const { affidavit, ...request } = JSON.parse(body)
        const { provider_keys: _, ...demands } = affidavit
        return ask(JSON.stringify({ ...request, affidavit: demands }))
      },
    })
    expect(await codeOf(CALLS.chat(client, newPrompt()))).toBe('wrong_request')
    expect(hostile.counts()).toEqual({ met: 1, altered: 1 })
    hostile.set({
      meets: 'completions',
      answer: ({ ask, body, headers }) => {
        const text = Buffer.from(headers[DEMANDS_HEADER] ?? '', 'base64url').toString()
        const { provider_keys: _, ...demands } = JSON.parse(text)
        const header = Buffer.from(JSON.stringify(demands)).toString('base64url')
        return ask(body, { [DEMANDS_HEADER]: header })
      },
    })
    expect(await codeOf(CALLS.responses(client, newPrompt()))).toBe('wrong_request')
  })
})
