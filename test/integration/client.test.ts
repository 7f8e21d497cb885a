import { execFile } from 'node:child_process'
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { promisify } from 'node:util'
import OpenAI from 'openai'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { type ConnectOptions, connect, type Proof } from '#client/index.ts'
import { type SharedAffidavit, useAffidavit } from '../support/use-affidavit.ts'

let service: SharedAffidavit
let trusted: Pick<ConnectOptions, 'url' | 'apiKey' | 'expect' | 'roots'>
let folder: string
beforeAll(async () => {
  service = await useAffidavit()
  const { roots, ...expected } = JSON.parse(await readFile(service.expectFile, 'utf8'))
  trusted = { url: service.url, apiKey: service.apiKey, expect: expected, roots }
  folder = await mkdtemp(join(tmpdir(), 'affidavit-client-'))
})
afterAll(() => rm(folder, { recursive: true, force: true }))

const ask = (text: string) => ({
  model: 'demo/echo',
  messages: [{ role: 'user' as const, content: `${text} (checked by the client)` }],
})
const echoed = (text: string) => `[demonstration] You said: ${text} (checked by the client)`
const post = (body: unknown, headers: Readonly<Record<string, string>> = {}): RequestInit => ({
  method: 'POST',
  headers: {
    'content-type': 'application/json',
    authorization: `Bearer ${service.apiKey}`,
    ...headers,
  },
  body: typeof body === 'string' ? body : JSON.stringify(body),
})

const codeOf = (running: Promise<unknown>) =>
  running.then(
    () => 'accepted',
    (fault) => fault.code ?? String(fault),
  )
/** Runs the official program on a proof file, as its receiver does. */
async function verify(proof: Proof): Promise<string> {
  const file = join(folder, `${proof.hash}.json`)
  await writeFile(file, proof.save())
  const root = ['--root', service.rootFile, '--any-measurement']
  const main = join(import.meta.dirname, '../../src/cli/main.ts')
  const { stdout } = await promisify(execFile)(process.execPath, [main, 'verify', file, ...root])
  return stdout
}

describe('connect', () => {
  it('connect finds the notaries, each with what was established about it', async () => {
    const { notaries, refused, baseURL } = await connect(trusted)
    expect(baseURL).toBe(`${service.url}/v1/verified`)
    expect(refused).toEqual([])
    const [notary] = notaries
    expect(notary?.notary).toMatch(/^0x[0-9a-f]{40}$/)
    expect(notary?.validUntil.getTime()).toBeGreaterThan(Date.now())
    expect(notary?.checks.map(({ name, outcome }) => [name, outcome])).toEqual([
      ['attestation document', 'passed'],
      ['nonce', 'passed'],
      ['measurements', 'passed'],
      ['configuration', 'passed'],
    ])
  })

  it('connect refuses, with the reason, when no enclave is the expected one', async () => {
    const { measurements, configurations } = trusted.expect
    const other = [{ PCR0: 'b0'.repeat(48) }]
    await expect(
      connect({ ...trusted, expect: { measurements: other, configurations } as never }),
    ).rejects.toMatchObject({
      code: 'no_notary',
      message: expect.stringContaining('unexpected_code'),
    })
    await expect(
      connect({ ...trusted, expect: { measurements, configurations: ['c0'.repeat(32)] } as never }),
    ).rejects.toMatchObject({
      code: 'no_notary',
      message: expect.stringContaining('unexpected_configuration'),
    })
  })

  it("connect refuses a development enclave under AWS's root", async () => {
    const { roots: _, ...rest } = trusted
    await expect(connect(rest)).rejects.toMatchObject({
      code: 'no_notary',
      message: expect.stringContaining('invalid_document'),
    })
  })

  it.each<[string, object]>([
    ['nothing expected', { expect: undefined }],
    ['a name that is misspelt', { expects: {} }],
    ['http over a network', { url: 'http://gateway.example' }],
    ['a URL with a query', { url: 'https://gateway.example/?a=b' }],
    ['no URL', { url: 'gateway.example' }],
    ["'true' for true", { hold: 'true' }],
    ['a count of none', { proofsMax: 0 }],
  ])('connect refuses options that make no sense: %s', async (_, more) => {
    expect(await codeOf(connect({ ...trusted, ...more } as ConnectOptions))).toBe('invalid_options')
  })

  it('connect distinguishes a gateway that does not answer from a server that answers something else', async () => {
    const server = createServer((_, response) => response.end('<html>'))
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
    const { port } = server.address() as AddressInfo
    const url = `http://127.0.0.1:${port}`
    expect(await codeOf(connect({ ...trusted, url }))).toBe('invalid_reply')
    await new Promise((resolve) => server.close(resolve))
    expect(await codeOf(connect({ ...trusted, url }))).toBe('unreachable')
  })
})

describe('its fetch', () => {
  it("the client's fetch gives a checked answer to the openai package, and keeps its proof", async () => {
    const { baseURL, fetch, proofs } = await connect(trusted)
    const openai = new OpenAI({ baseURL, apiKey: service.apiKey, fetch })
    const answer = await openai.chat.completions.create(ask('whole'))
    expect(answer.choices[0]?.message.content).toBe(echoed('whole'))
    const proof = proofs.get((answer as unknown as { hash: string }).hash)
    expect(proof?.checks.filter(({ outcome }) => outcome === 'failed')).toEqual([])
    expect(
      proof?.checks.filter(({ outcome }) => outcome === 'passed').map(({ name }) => name),
    ).toEqual([
      'request hash',
      'response hash',
      'hash',
      'public key',
      'signature',
      'receipt',
      'attestation key',
      'receipt in log',
      'tree head',
      'notary',
      'attestation document',
      'log domain',
      'provider',
      'outcome',
      'attempt',
      'credential',
      'encryption',
    ])
    expect(String(proof)).toContain('passed       signature')
    expect(await verify(proof as Proof)).toMatch(
      /^CONSISTENT: .*: measurements, boot configuration, anchor\.\n/,
    )
    expect(String(proof)).toMatch(/^CONSISTENT: .*anchor/)
  })

  it.each([[false], [true]])("the client's fetch gives a checked stream, held %s", async (hold) => {
    const { baseURL, fetch, proofs } = await connect({ ...trusted, hold })
    const openai = new OpenAI({ baseURL, apiKey: service.apiKey, fetch })
    const stream = await openai.chat.completions.create({
      ...ask(`streamed ${hold}`),
      stream: true,
    })
    let text = ''
    for await (const chunk of stream) text += chunk.choices[0]?.delta.content ?? ''
    expect(text).toBe(echoed(`streamed ${hold}`))
    expect(proofs.latest?.answer.kind).toBe('stream')
    expect(await verify(proofs.latest as Proof)).toMatch(/^CONSISTENT: nothing failed/)
  })

  it("a record of the client's fetch has no content, and the proof that the client kept completes it", async () => {
    const { baseURL, fetch, proofs, anchored } = await connect(trusted)
    await (await fetch(`${baseURL}/chat/completions`, post(ask('encrypted')))).json()
    const proof = proofs.latest as Proof
    expect(proof.receipt).toMatchObject({ version: 3, encrypted: true })
    const authorization = `Bearer ${service.apiKey}`
    const path = `${service.url}/v1/verified/chat/completions/${proof.hash}`
    const record = await (await globalThis.fetch(path, { headers: { authorization } })).json()
    expect(record).toMatchObject({ request: null, response: null, redacted: true })
    expect((await anchored(proof)).report.verdict).toBe('verified')
  })

  it("the client's fetch sends its call unencrypted when its caller says so", async () => {
    const { baseURL, fetch, proofs } = await connect({ ...trusted, encrypt: false })
    await (await fetch(`${baseURL}/chat/completions`, post(ask('in the clear')))).json()
    expect(proofs.latest?.receipt).toMatchObject({ version: 3, encrypted: false })
    expect(proofs.latest?.checks.at(-1)).toMatchObject({ outcome: 'not checked' })
  })

  it("the client's fetch adds a nonce to each call, except to a call that has one", async () => {
    const { baseURL, fetch, proofs } = await connect(trusted)
    const url = `${baseURL}/chat/completions`
    for (let call = 0; call < 2; call += 1) await (await fetch(url, post(ask('twice')))).json()
    const nonces = [...proofs].map(({ request }) => JSON.stringify(request.affidavit))
    expect(new Set(nonces).size).toBe(2)
    const nonce = 'ab'.repeat(16)
    await (await fetch(url, post({ ...ask('with its own'), affidavit: { nonce } }))).json()
    expect(proofs.latest?.request.affidavit).toEqual({ nonce, credential: 'operator' })
    expect(proofs.latest?.checks.at(-3)).toMatchObject({ name: 'attempt', outcome: 'not checked' })
  })

  it("the client's fetch repeats a call under its Idempotency-Key as the same call", async () => {
    const { baseURL, fetch, proofs } = await connect({ ...trusted, encrypt: false })
    const headers = { 'idempotency-key': `client-${Math.random()}` }
    const call = post(ask('kept under a key'), headers)
    const first = await (await fetch(`${baseURL}/chat/completions`, call)).text()
    const again = await fetch(`${baseURL}/chat/completions`, call)
    expect(await again.text()).toBe(first)
    expect(again.headers.get('idempotent-replayed')).toBe('true')
    expect(proofs.size).toBe(1)
    const streamed = { ...ask('kept as a stream'), stream: true }
    const asStream = post(streamed, { 'idempotency-key': `client-${Math.random()}` })
    await (await fetch(`${baseURL}/chat/completions`, asStream)).text()
    const replayed = await (await fetch(`${baseURL}/chat/completions`, asStream)).text()
    expect(replayed).toContain('[DONE]')
  })

  it("the client's fetch sends everything else of the body as the caller wrote it", async () => {
    const { baseURL, fetch, proofs } = await connect(trusted)
    const body = `\n { "seed" : 1e2,\t"messages":[{"content":"as it is (checked by the client)","role":"user"}], "model":"demo/echo"} `
    const answer = await (await fetch(`${baseURL}/chat/completions`, post(body))).json()
    expect(answer).toMatchObject({ choices: [{ message: { content: echoed('as it is') } }] })
    expect(proofs.latest?.request.seed).toBe(100)
  })

  it("the client's fetch passes errors on as the gateway gives them, with what clients read in them", async () => {
    const { baseURL, fetch, proofs } = await connect(trusted)
    const response = await fetch(
      `${baseURL}/chat/completions`,
      post({ ...ask('x'), messages: 'none' }),
    )
    expect(response.status).toBe(422)
    expect(await response.json()).toHaveProperty('detail')
    const plain = await connect({ ...trusted, encrypt: false })
    const refused = await plain.fetch(
      `${baseURL}/chat/completions`,
      post({ ...ask('x'), temperature: 3 }),
    )
    expect(refused.status).toBe(422)
    expect(await refused.json()).toHaveProperty('detail')
    const openai = new OpenAI({ baseURL, apiKey: 'no key', fetch, maxRetries: 0 })
    await expect(openai.chat.completions.create(ask('x'))).rejects.toMatchObject({ status: 401 })
    expect(proofs.size).toBe(0)
  })

  it("the client's fetch lists the models, and refuses a call without proof before it is sent", async () => {
    const { baseURL, fetch } = await connect(trusted)
    const openai = new OpenAI({ baseURL, apiKey: service.apiKey, fetch, maxRetries: 0 })
    expect((await openai.models.list()).data.map(({ id }) => id)).toContain('demo/echo')
    for (const [url, init] of [
      [`${service.url}/v1/chat/completions`, post(ask('plain'))],
      [`${baseURL}/chat/completions`, { headers: { authorization: `Bearer ${service.apiKey}` } }],
      [`${baseURL}/../chat/completions`, post(ask('dots'))],
      ['https://elsewhere.example/v1/verified/chat/completions', post(ask('elsewhere'))],
    ] as const)
      expect(await codeOf(fetch(url, init))).toBe('unsupported_call')
    for (const body of ['{', '[]', '{"a":1,"a":2}', '{"affidavit":{"nonce":"short"}}', ''])
      expect(await codeOf(fetch(`${baseURL}/chat/completions`, post(body)))).toBe('invalid_request')
  })

  it("the client's fetch is ended by its signal, whole and in the middle of a stream", async () => {
    const { baseURL, fetch } = await connect(trusted)
    const leaving = AbortSignal.abort()
    await expect(
      fetch(`${baseURL}/chat/completions`, { ...post(ask('left')), signal: leaving }),
    ).rejects.toThrow(/abort/i)
    const abort = new AbortController()
    const streamed = post({ ...ask('left in the middle'), stream: true })
    const response = await fetch(`${baseURL}/chat/completions`, {
      ...streamed,
      signal: abort.signal,
    })
    abort.abort()
    await expect(response.text()).rejects.toThrow()
  })

  it("the client's fetch gives no answer whose proof could not be kept", async () => {
    const given: string[] = []
    const { baseURL, fetch, onProof } = await connect({
      ...trusted,
      onProof: ({ hash }) => {
        given.push(hash)
        if (given.length === 2) throw new Error('the disk is full')
      },
    })
    const seen: string[] = []
    const forget = onProof(({ hash }) => {
      seen.push(hash)
    })
    const url = `${baseURL}/chat/completions`
    await (await fetch(url, post(ask('kept')))).json()
    await expect((await fetch(url, post(ask('not kept')))).json()).rejects.toThrow(
      'the disk is full',
    )
    forget()
    await (await fetch(url, post(ask('kept again')))).json()
    expect(seen).toEqual(given.slice(0, 1))
    expect(given).toHaveLength(3)
  })

  it("the client's fetch keeps as many proofs as its option says", async () => {
    const { baseURL, fetch, proofs } = await connect({ ...trusted, proofsMax: 2 })
    for (const text of ['one', 'two', 'three'])
      await (await fetch(`${baseURL}/chat/completions`, post(ask(`of ${text}`)))).json()
    expect(proofs.size).toBe(2)
    expect([...proofs].map(({ hash }) => hash)).not.toContain('')
    expect(proofs.get(`0x${proofs.latest?.hash.toUpperCase()}`)).toBe(proofs.latest)
  })
})

describe('its anchored', () => {
  it("the client's anchored waits for the block, and gives the bundle, verified with the chain", async () => {
    const affidavit = await connect(trusted)
    await (
      await affidavit.fetch(`${affidavit.baseURL}/chat/completions`, post(ask('anchored')))
    ).json()
    const proof = affidavit.proofs.latest as Proof
    const { bundle, text, report } = await affidavit.anchored(proof, { rpc: service.rpcUrl })
    expect(report.verdict).toBe('verified')
    expect(bundle.record.hash).toBe(proof.hash)
    expect(JSON.parse(text).block.number).toBe(bundle.block?.number)
  })

  it("the client's anchored refuses the evidence of another call", async () => {
    const affidavit = await connect(trusted)
    const url = `${affidavit.baseURL}/chat/completions`
    for (const text of ['mine', 'of another'])
      await (await affidavit.fetch(url, post(ask(`evidence ${text}`)))).json()
    const [mine, other] = affidavit.proofs
    const swapped = { ...mine, hash: other?.hash } as Proof
    expect(await codeOf(affidavit.anchored(swapped))).toBe('other_evidence')
    const unknown = { ...mine, hash: '00'.repeat(32) } as Proof
    expect(await codeOf(affidavit.anchored(unknown))).toBe('gateway_error')
  })

  it("the client's anchored gives up when it takes too long, or its caller leaves", async () => {
    const affidavit = await connect(trusted)
    const url = `${affidavit.baseURL}/chat/completions`
    await (await affidavit.fetch(url, post(ask('too long')))).json()
    const proof = affidavit.proofs.latest as Proof
    const never = { rpc: service.rpcUrl, confirmations: 1_000_000_000, timeoutMs: 300 }
    expect(await codeOf(affidavit.anchored(proof, never))).toBe('not_anchored')
    const leaving = { ...never, timeoutMs: 60_000, signal: AbortSignal.timeout(300) }
    await expect(affidavit.anchored(proof, leaving)).rejects.toMatchObject({ name: 'TimeoutError' })
  })
})
