import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import type { DialectName } from '#attestation/dialects/dialect-names.ts'
import { DIALECTS } from '#attestation/dialects/dialects.ts'
import { parseExactJson } from '#attestation/json/parse-strict.ts'
import type { JsonObject } from '#attestation/json/value.ts'
import { verifyRecord } from '#attestation/verify-record.ts'
import { type Affidavit, startAffidavit } from '../support/affidavit.ts'
import { AT_ONCE_MS } from '../support/at-once.ts'
import { createAuthority } from '../support/certificates.ts'
import {
  chunked,
  completionOf,
  EVENT_STREAM_HEAD,
  eventsOf,
  send,
  splitEverywhere,
  wholeAnswer,
} from '../support/hostile-answers.ts'
import { HOSTILE_DIALECTS, readWholeStream } from '../support/hostile-dialects.ts'
import {
  type HostileProvider,
  type ReceivedRequest,
  type Step,
  startHostileProvider,
} from '../support/hostile-provider.ts'
import { GREETING_CHUNKS } from '../support/hostile-scripts.ts'

/** Time until a sealed answer is committed, also the largest one: 24 MiB on a busy machine. */
const RECORD_TIMEOUT_MS = 60_000

let service: Affidavit
let folder = ''
let hostile: HostileProvider
const others: HostileProvider[] = []
let answer: (request: ReceivedRequest) => Iterable<Step> = () => []

/** A provider for each model id `NAME/…`, over TLS with a certificate or in the clear. */
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'affidavit-hostile-'))
  const [trusted, stranger] = await Promise.all([createAuthority(), createAuthority('Stranger')])
  const day = 86_400_000
  const expired = {
    notBefore: new Date(Date.now() - 2 * day),
    notAfter: new Date(Date.now() - day),
  }
  const certificates = {
    trusted: await trusted.issue({ hosts: ['127.0.0.1'] }),
    stranger: await stranger.issue({ hosts: ['127.0.0.1'] }),
    'other-host': await trusted.issue({ hosts: ['provider.example.com'] }),
    expired: await trusted.issue({ hosts: ['127.0.0.1'], validity: expired }),
  }
  hostile = await startHostileProvider({ answer: (request) => answer(request) })
  const table = [
    { name: 'hostile', origin: hostile.origin },
    { name: 'nobody', origin: 'http://127.0.0.1:9' },
  ]
  for (const [name, tls] of Object.entries(certificates)) {
    const provider = await startHostileProvider({
      tls,
      answer: () => [send(wholeAnswer({ body: JSON.stringify(completionOf('secure')) }))],
    })
    others.push(provider)
    table.push({ name, origin: provider.origin })
  }
  const entries = table.map((entry) => ({
    ...entry,
    path: '/v1/chat/completions',
    models: [`${entry.name}/*`],
    endpoints: { responses: { path: '/v1/responses' }, messages: { path: '/v1/messages' } },
  }))
  await writeFile(join(folder, 'providers.json'), JSON.stringify(entries))
  await writeFile(join(folder, 'ca.pem'), trusted.certificate)
  service = await startAffidavit({
    logLevel: 'warn',
    variables: {
      PROVIDERS_FILE: join(folder, 'providers.json'),
      PROVIDER_CA_FILE: join(folder, 'ca.pem'),
      FIRST_BYTE_TIMEOUT_MS: '1500',
      IDLE_TIMEOUT_MS: '1500',
    },
  })
})
afterAll(async () => {
  await service.stop()
  await Promise.all([hostile, ...others].map((provider) => provider.close()))
  await rm(folder, { recursive: true, force: true })
})

type Reply = { readonly status: number; readonly text: string }

async function ask(
  model: string,
  more: object = {},
  { signal, name = 'chat' }: { readonly signal?: AbortSignal; readonly name?: DialectName } = {},
): Promise<Reply> {
  const { path, body } = HOSTILE_DIALECTS[name]
  const response = await fetch(`${service.url}${path}`, {
    method: 'POST',
    headers: {
      authorization: `Bearer ${service.apiKey}`,
      'content-type': 'application/json',
      'fine-tune-authorization': 'Bearer my-provider-key',
    },
    body: JSON.stringify({ model, ...body, ...more }),
    ...(signal ? { signal } : {}),
  })
  return { status: response.status, text: await response.text() }
}

/** The data of a stream's events; all but `[DONE]` as values. */
function dataOf(text: string): readonly string[] {
  return text
    .split('\n\n')
    .filter((event) => event.startsWith('data: '))
    .map((event) => event.slice('data: '.length))
}

async function recordText(hash: string): Promise<string> {
  const response = await fetch(`${service.url}/v1/verified/records/${hash}`, {
    headers: { authorization: `Bearer ${service.apiKey}` },
  })
  expect(response.status).toBe(200)
  return response.text()
}

type Outline = {
  readonly hash: string
  readonly receipt: { readonly outcome: string; readonly model: { readonly requested: string } }
  readonly response: JsonObject
}

async function recordsOf(model: string): Promise<readonly Outline[]> {
  const response = await fetch(`${service.url}/v1/verified/records?limit=20`, {
    headers: { authorization: `Bearer ${service.apiKey}` },
  })
  const { completions } = (await response.json()) as {
    completions: readonly Outline[]
  }
  return completions.filter(({ receipt }) => receipt.model.requested === model)
}

async function expectProven(hash: string): Promise<void> {
  const report = verifyRecord(parseExactJson(Buffer.from(await recordText(hash))))
  expect(report.checks.filter(({ outcome }) => outcome === 'failed')).toEqual([])
}

describe.each(Object.entries(HOSTILE_DIALECTS))('an answer of %s', (key, dialect) => {
  const name = key as DialectName

  it.each(Object.entries(dialect.good))(
    `an odd, whole answer of ${name} is given as it was hashed: %s`,
    async (slug, { steps, content }) => {
      const isStream = slug.startsWith('stream/')
      answer = () => steps
      const reply = await ask(`hostile/${name}-${slug}`, isStream ? dialect.streamed : {}, { name })
      expect(reply.status).toBe(200)
      const body = isStream ? null : JSON.parse(reply.text)
      const given = body === null ? readWholeStream(name, reply.text) : null
      expect(dialect.contentOf(given?.answer ?? body) === content).toBe(true)
      const proof = given?.proof ?? DIALECTS[name].proofOf(body)
      await expectProven(String((proof as JsonObject).hash))
    },
  )

  it.each(Object.entries(dialect.bad))(
    `an answer that is none of ${name} gives our own error and leaves no record: %s`,
    async (slug, bad) => {
      const model = `hostile/${name}-bad-${slug}`
      answer = () => bad.steps
      const reply = await ask(model, {}, { name })
      // Anthropic's errors have no status 502.
      expect(reply.status).toBe(name === 'messages' && bad.status === 502 ? 500 : bad.status)
      const { error } = JSON.parse(reply.text)
      expect(error.message).toEqual(expect.any(String))
      if (name === 'chat') expect(error).toMatchObject({ status_code: bad.status, code: bad.code })
      expect(await recordsOf(model)).toEqual([])
    },
  )

  it.each(Object.entries(dialect.broken))(
    `a stream of ${name} that breaks off is no whole stream, and its record says so: %s`,
    async (slug, steps) => {
      const model = `hostile/${name}-broken-${slug}`
      answer = () => steps
      const { status, text } = await ask(model, { stream: true }, { name })
      expect(status).toBe(200)
      expect(() => readWholeStream(name, text)).toThrow()
      expect(text).toMatch(/^event: (?:error|response\.failed)\ndata: .*"message":"./m)
      await expect
        .poll(async () => (await recordsOf(model)).length, { timeout: RECORD_TIMEOUT_MS })
        .toBe(1)
      const [record] = await recordsOf(model)
      expect(record?.receipt.outcome).toBe('upstream_error')
      expect(dialect.contentOf(record?.response ?? {})).toMatch(/^héllo/)
      await expectProven(record?.hash ?? '')
    },
  )
})

describe('an answer of a chat', () => {
  it('an odd, whole answer is the same wherever its bytes are split', async () => {
    const events = chunked(eventsOf([...GREETING_CHUNKS.slice(1), '[DONE]'], '\r\n'))
    const splits = [...splitEverywhere(Buffer.concat([EVENT_STREAM_HEAD, events, chunked('')]))]
    answer = ({ body }) => {
      const { seed } = JSON.parse(Buffer.from(body).toString())
      const [first, second] = splits[seed] ?? [new Uint8Array(), new Uint8Array()]
      return [send(first), { kind: 'pause', durationMs: 2 }, send(second)]
    }
    const wrong: number[] = []
    const positions = [...splits.keys()]
    const work = async () => {
      for (let seed = positions.pop(); seed !== undefined; seed = positions.pop()) {
        const { text } = await ask('hostile/split', { stream: true, seed })
        const data = dataOf(text)
        const chunks = data.slice(0, -1).map((item) => JSON.parse(item))
        const said = chunks.map((chunk) => chunk.choices[0]?.delta.content ?? '').join('')
        if (said !== 'héllo 🙂' || data.at(-1) !== '[DONE]' || !chunks.at(-1).hash) wrong.push(seed)
      }
    }
    await Promise.all(Array.from({ length: 16 }, work))
    expect(splits.length).toBeGreaterThan(500)
    expect(wrong).toEqual([])
  })
})

describe('an answer that is not a completion', () => {
  it('the provider’s own refusal is handed on with its status and message, and leaves no record', async () => {
    const body = JSON.stringify({
      error: { message: 'max_tokens is too large', type: 'invalid_request_error' },
    })
    for (const status of [400, 404, 429]) {
      answer = () => [send(wholeAnswer({ status, body }))]
      const reply = await ask(`hostile/refused-${status}`)
      expect(reply.status).toBe(status)
      expect(JSON.parse(reply.text).error.message).toContain('max_tokens is too large')
      expect(await recordsOf(`hostile/refused-${status}`)).toEqual([])
    }
  })

  it("a provider's redirect is not followed", async () => {
    const before = hostile.requests.length
    answer = () => [
      send(
        `HTTP/1.1 307 Moved\r\nlocation: ${hostile.origin}/elsewhere\r\ncontent-length: 0\r\n\r\n`,
      ),
    ]
    expect((await ask('hostile/redirect-here')).status).toBe(502)
    expect(hostile.requests.slice(before).map(({ target }) => target)).toEqual([
      '/v1/chat/completions',
    ])
  })
})

describe('a provider over TLS', () => {
  it('a provider over TLS is named in the receipt by the key it showed', async () => {
    const reply = await ask('trusted/model')
    expect(reply.status).toBe(200)
    const { receipt, hash } = JSON.parse(reply.text)
    expect(receipt.provider).toMatchObject({
      name: 'trusted',
      tls: {
        protocol: 'TLSv1.3',
        spki_sha256: expect.stringMatching(/^[0-9a-f]{64}$/),
        issuer: 'CN=Test authority',
      },
    })
    await expectProven(hash)
    expect(others[0]?.requests.at(-1)?.headers.get('authorization')).toBe('Bearer my-provider-key')
  })

  it.each(['stranger', 'other-host', 'expired'])(
    'a provider over TLS is sent nothing when its certificate is wrong: %s',
    async (name) => {
      const reply = await ask(`${name}/model`)
      expect(reply.status).toBe(502)
      expect(JSON.parse(reply.text).error.code).toBe('provider_unreachable')
      const index = ['trusted', 'stranger', 'other-host', 'expired'].indexOf(name)
      expect(others[index]?.requests).toEqual([])
    },
  )
})

describe('a caller who goes away', () => {
  /** Leaves after the provider has the call; gives how long the provider's connection lived on. */
  async function leave(model: string, more: object, begun: readonly Step[]): Promise<number> {
    answer = () => [...begun, { kind: 'stall' }]
    const before = hostile.requests.length
    const leaving = new AbortController()
    const asking = ask(model, more, { signal: leaving.signal }).catch(() => null)
    await expect.poll(() => hostile.requests.length).toBe(before + 1)
    await sleep(100)
    leaving.abort()
    const leftAt = performance.now()
    await hostile.requests.at(-1)?.closed
    await asking
    return performance.now() - leftAt
  }

  it('a caller who goes away ends the provider’s call at once, and the record of what came says so', async () => {
    const model = 'hostile/left-midway'
    const begun = [send(EVENT_STREAM_HEAD), send(chunked(eventsOf(GREETING_CHUNKS.slice(0, 2))))]
    expect(await leave(model, { stream: true }, begun)).toBeLessThan(AT_ONCE_MS)
    await expect
      .poll(async () => (await recordsOf(model)).length, { timeout: RECORD_TIMEOUT_MS })
      .toBe(1)
    const [record] = await recordsOf(model)
    expect(record?.receipt.outcome).toBe('client_disconnected')
    expect(record?.response.choices).toMatchObject([
      { finish_reason: null, message: { content: 'héllo' } },
    ])
    await expectProven(record?.hash ?? '')
  })

  it.each([
    ['of a stream', 'hostile/left-stream', { stream: true }],
    ['of a whole answer', 'hostile/left-whole', {}],
  ])(
    'a caller who leaves before the first byte %s ends the provider’s call at once, without a record',
    async (_, model, more) => {
      expect(await leave(model, more, [])).toBeLessThan(AT_ONCE_MS)
      // Completions are committed in the order of sealing, so a later record shows that this call
      // left no record.
      answer = () => [send(wholeAnswer({ body: JSON.stringify(completionOf('later')) }))]
      expect((await ask('hostile/later')).status).toBe(200)
      expect(await recordsOf(model)).toEqual([])
    },
  )
})
