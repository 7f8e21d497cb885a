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
import { runCli } from '../support/run-cli.ts'

const HOUR_MS = 3_600_000

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
  const policies = [honest.policy]
  options = { url: hostile.url, apiKey: service.apiKey, ...expected, providers: { policies } }
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
const serviceOf = (evidence: ReturnType<typeof attestKey>) =>
  listing(evidence.digest, evidence.bytes)
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

    it('a session demands the keys in each call', async () => {
      const client = await connect({ ...options, encrypt })
      const session = client.startSession()
      for (let call = 0; call < 2; call += 1) await CALLS.chat(client, newPrompt(), session.fetch)
      for (const { request } of session.proofs)
        expect(request.affidavit).toMatchObject({ provider_keys: [provider.keys[0]] })
      expect(session.proofs).toHaveLength(2)
    })
  })

describe('affidavit proxy --provider-policy', () => {
  const CLI = join(import.meta.dirname, '../../src/cli/main.ts')
  const argumentsOf = (...files: readonly string[]) => [
    'proxy',
    '--url',
    hostile.url,
    '--expect',
    service.expectFile,
    '--port',
    '0',
    ...files.flatMap((file) => ['--provider-policy', file]),
  ]
  async function writePolicy(name: string, policy: object): Promise<string> {
    await writeFile(join(folder, name), JSON.stringify(policy))
    return join(folder, name)
  }

  it('the proxy prints which provider gets calls, and sends nothing to another key', async () => {
    const other = attestKey({ origin: 'https://other.example', key: provider.keys[1] })
    const files = [
      await writePolicy('policy.json', honest.policy),
      await writePolicy('other.json', other.policy),
    ]
    const child = spawn(process.execPath, [CLI, ...argumentsOf(...files)])
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

  it('the proxy does not start without an attested provider, or with a wrong policy', async () => {
    const { configurations: _, ...unread } = honest.policy
    const wrong = await writePolicy('wrong.json', unread)
    const usage = await runCli(argumentsOf(wrong))
    expect(usage.code).toBe(2)
    expect(usage.stderr).toContain(`${wrong}: provider policy`)
    const elsewhere = { ...honest.policy, origins: ['https://other.example'] }
    const refused = await runCli(argumentsOf(await writePolicy('elsewhere.json', elsewhere)))
    expect(refused.code).toBe(1)
    expect(refused.stderr).toContain('no_attested_provider')
  })
})

describe('a gateway that lies about providers', () => {
  const attested = (key: string, fetchedAtMs?: number) =>
    attestKey({ origin: provider.origin, key }, fetchedAtMs)

  it.each<[string, () => Attack, string]>([
    [
      'swaps the evidence',
      () => listing(honest.digest, attested(provider.keys[1]).bytes),
      'digest',
    ],
    [
      'gives the evidence of another key and code',
      () => serviceOf(attested(provider.keys[1])),
      'configuration_not_accepted',
    ],
    [
      'gives the evidence of another provider',
      () => serviceOf(attestKey({ origin: 'https://other.example', key: provider.keys[0] })),
      'provider_origin',
    ],
    [
      'gives old evidence',
      () => serviceOf(attested(provider.keys[0], Date.now() - 25 * HOUR_MS)),
      'evidence_too_old',
    ],
    [
      'states another digest',
      () => listing('00'.repeat(32), honest.bytes),
      'expected the evidence to have the stated digest',
    ],
    [
      'cuts the evidence',
      () => listing(honest.digest, honest.bytes.subarray(0, 1000)),
      'the stated digest',
    ],
    ['breaks off in the evidence', () => cutting('cut'), 'terminated'],
    ['hangs in the evidence', () => cutting('stall'), 'timeout'],
    ['gives 100 MB', () => listing(honest.digest, hugeDocument()), 'at most 4194304 bytes'],
    [
      'leaves the provider out',
      () => ({ meets: 'providers', answer: () => answer('{"data":[]}') }),
      'the gateway does not list this provider',
    ],
    [
      'gives a list of 100 MB',
      () => ({ meets: 'providers', answer: () => answer(hugeDocument()) }),
      'at most 4194304 bytes',
    ],
  ])('no call is made through a gateway that %s', async (_, attack, reason) => {
    hostile.set(attack())
    const timeoutMs = 1_500
    const startedAtMs = performance.now()
    const fault = await connect({ ...options, timeoutMs }).catch((error: unknown) => error)
    expect(performance.now() - startedAtMs).toBeLessThan(20_000)
    expect(fault).toBeInstanceOf(AffidavitError)
    expect(`${(fault as AffidavitError).code} ${(fault as AffidavitError).message}`).toContain(
      reason,
    )
  })

  it('a client that was connected makes no call after the accepted evidence ended', async () => {
    const shortPolicy = { ...honest.policy, max_age_hours: 1 }
    const ending = attested(provider.keys[0], Date.now() - HOUR_MS + 3_000)
    hostile.set(serviceOf(ending))
    const client = await connect({ ...options, providers: { policies: [shortPolicy] } })
    expect(await codeOf(CALLS.chat(client, newPrompt()))).toBe('given')
    await expect.poll(() => client.providers).toEqual([])
    await expect.poll(() => codeOf(CALLS.chat(client, newPrompt()))).toBe('no_attested_provider')
    const before = provider.received.join('')
    expect(await codeOf(CALLS.chat(client, newPrompt()))).toBe('no_attested_provider')
    expect(provider.received.join('')).toBe(before)
  })

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

  it('newer evidence of a new key is taken by refresh', async () => {
    const next = attested(provider.keys[1])
    const policies = [honest.policy, next.policy]
    const client = await connect({ ...options, providers: { policies } })
    await provider.useKey(1)
    expect(await codeOf(CALLS.chat(client, newPrompt()))).toBe('provider_key_mismatch')
    hostile.set(serviceOf(next))
    await client.refresh()
    expect(client.providers.map(({ keys }) => keys)).toEqual([[provider.keys[1]]])
    expect(await codeOf(CALLS.chat(client, newPrompt()))).toBe('given')
    await provider.useKey(0)
    expect(await codeOf(CALLS.chat(client, newPrompt()))).toBe('provider_key_mismatch')
  })

  /** Gives the first bytes of the evidence, and then no more. */
  function cutting(after: 'cut' | 'stall'): Attack {
    return {
      meets: 'providers',
      answer: (call) =>
        call.path === '/v1/providers'
          ? serviceOf(honest).answer(call)
          : answer(honest.bytes.subarray(0, 100), after),
    }
  }

  async function* hugeDocument(): AsyncIterable<Uint8Array> {
    const part = new Uint8Array(20_000_000).fill(0x20)
    for (let at = 0; at < 5; at += 1) yield part
  }
})
