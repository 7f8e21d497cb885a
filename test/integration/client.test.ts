import { spawnSync } from 'node:child_process'
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import OpenAI from 'openai'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { type ConnectOptions, connect, type Proof } from '#client/index.ts'
import { type SharedAffidavit, useAffidavit } from '../support/use-affidavit.ts'

let service: SharedAffidavit
let trusted: Pick<ConnectOptions, 'url' | 'apiKey' | 'policy'>
let folder: string
beforeAll(async () => {
  service = await useAffidavit()
  const policy = JSON.parse(await readFile(service.policyFile, 'utf8'))
  trusted = { url: service.url, apiKey: service.apiKey, policy }
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
  const { stdout } = spawnSync(process.execPath, [main, 'verify', file, ...root], {
    encoding: 'utf8',
  })
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
      /^INCOMPLETE: .*: measurements, expected configuration, transaction hash, anchor, block header, .*\.\n/,
    )
    expect(String(proof)).toMatch(/^INCOMPLETE: .*anchor/)
  })

  it("a record of the client's fetch has no content, and the proof that the client kept completes it", async () => {
    const { baseURL, fetch, proofs, anchored } = await connect(trusted)
    await (await fetch(`${baseURL}/chat/completions`, post(ask('encrypted')))).json()
    const proof = proofs.latest as Proof
    expect(proof.receipt).toMatchObject({ version: 1, encrypted: true })
    const authorization = `Bearer ${service.apiKey}`
    const path = `${service.url}/v1/verified/chat/completions/${proof.hash}`
    const record = await (await globalThis.fetch(path, { headers: { authorization } })).json()
    expect(record).toMatchObject({ request: null, response: null, redacted: true })
    expect((await anchored(proof)).report.verdict).toBe('verified')
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
