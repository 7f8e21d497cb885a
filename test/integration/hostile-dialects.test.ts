import Anthropic from '@anthropic-ai/sdk'
import OpenAI from 'openai'
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest'
import { CALL_DIALECTS } from '#client/call-dialects.ts'
import { type Affidavit, connect } from '#client/index.ts'
import { type CheckingProxy, type ProxiedCall, serveProxy } from '#src/cli/proxy/serve-proxy.ts'
import { readExpectedService } from '../support/expected-service.ts'
import { damage, EVIL, reframing, rewriting } from '../support/gateway-attacks/attack-case.ts'
import {
  type Attack,
  type HostileGateway,
  startHostileGateway,
} from '../support/hostile-gateway.ts'
import { type SharedAffidavit, useAffidavit } from '../support/use-affidavit.ts'

let service: SharedAffidavit
let hostile: HostileGateway
/** Clients of the hostile gateway, and a proxy of the client that does not encrypt. */
let clear: Affidavit
let encrypted: Affidavit
let proxy: CheckingProxy
const calls: ProxiedCall[] = []

beforeAll(async () => {
  service = await useAffidavit()
  hostile = await startHostileGateway(service.url)
  const { connect: options } = await readExpectedService(service)
  clear = await connect({ url: hostile.url, ...options, encrypt: false })
  encrypted = await connect({ url: hostile.url, ...options, encrypt: true })
  const onCall = (call: ProxiedCall) => void calls.push(call)
  proxy = await serveProxy({ affidavit: clear, port: 0, onCall })
})
afterEach(() => {
  hostile.set(null)
  calls.length = 0
})
afterAll(async () => {
  await proxy.close()
  await hostile.stop()
})

type Case = {
  readonly name: string
  readonly path: string
  readonly body: object
  /** The type of the last event. */
  readonly last: string
  /** The type of the event with a piece of the text. */
  readonly delta: string
}
const RESPONSES: Case = {
  name: 'Responses',
  path: '/responses',
  body: { model: 'demo/echo', input: 'Pay Ann 5' },
  last: 'response.completed',
  delta: 'response.output_text.delta',
}
const MESSAGES: Case = {
  name: 'Messages',
  path: '/anthropic/v1/messages',
  body: {
    model: 'demo/echo',
    max_tokens: 100,
    messages: [{ role: 'user', content: 'Pay Ann 5' }],
  },
  last: 'message_stop',
  delta: 'content_block_delta',
}
const CASES = [RESPONSES, MESSAGES]

/** The text of an event without its proof. */
const withoutProof = (event: string) =>
  event.replace(/^data: (.*)$/m, (_, data: string) => {
    const json = JSON.parse(data)
    delete json.affidavit
    delete json.response?.affidavit
    return `data: ${JSON.stringify(json)}`
  })
const eventsIn = (text: string) => text.split(/(?<=\n\n)/)
const post = (body: object): RequestInit => ({
  method: 'POST',
  headers: {
    'content-type': 'application/json',
    'x-api-key': service.apiKey,
    'anthropic-version': '2023-06-01',
  },
  body: JSON.stringify(body),
})

/** Reads an answer as far as it is given. */
async function read(response: Response): Promise<{ given: string; fault: string | null }> {
  let given = ''
  const decoder = new TextDecoder()
  try {
    for await (const part of response.body ?? []) given += decoder.decode(part, { stream: true })
    return { given, fault: null }
  } catch (fault) {
    return { given, fault: (fault as { readonly code?: string }).code ?? String(fault) }
  }
}

const none = new Uint8Array()
const isOf = (type: string) => (event: string) => event.startsWith(`event: ${type}\n`)

/** Checks that the client gives the stream as an error, with one of these codes. */
async function expectRefused(
  affidavit: Affidavit,
  { path, body, last }: Case,
  { attack, code }: { readonly attack: Attack; readonly code: string },
): Promise<void> {
  hostile.set(attack)
  const kept = affidavit.proofs.size
  const asked = post({ ...body, stream: true })
  const { given, fault } = await read(await affidavit.fetch(affidavit.baseURL + path, asked))
  expect(fault).toMatch(new RegExp(`^(${code})$`))
  expect(eventsIn(given).some(isOf(last))).toBe(false)
  expect(hostile.counts().altered).toBe(1)
  expect(affidavit.proofs.size).toBe(kept)
}

describe.each(CASES)('a hostile gateway before callers of $name', (tried) => {
  const { name, path, body, delta, last } = tried
  /** Changes the events of the real gateway's stream. */
  const editing = (change: (events: readonly string[]) => readonly string[]) =>
    rewriting((text) => change(eventsIn(text)).join(''))
  const cutting = () => editing((all) => all.slice(0, -1))
  const altering = () =>
    editing((all) => {
      const at = all.findIndex(isOf(delta))
      return all.with(at, (all[at] ?? '').replace(/"(delta|text)":"[^"]*"/, `"$1":"${EVIL}"`))
    })
  const other = CASES.find((one) => one.name !== name) as Case
  let old: readonly string[] = []
  beforeAll(async () => {
    const kept = await fetch(`${service.url}/v1/verified${path}`, {
      ...post({ ...body, stream: true }),
    })
    old = eventsIn(await kept.text())
  })

  it.each<[string, string, () => Attack]>([
    ['cuts a stream before its last event', 'cut_stream', cutting],
    ['cuts a stream after its first event', 'cut_stream', () => editing((all) => all.slice(0, 1))],
    ['alters a piece of the text', 'invalid_stream|wrong_stream|wrong_response', altering],
    [
      'drops a piece of the text',
      'invalid_stream|wrong_stream|wrong_response',
      () => editing((all) => all.toSpliced(all.findIndex(isOf(delta)), 1)),
    ],
    [
      'adds an event that SDKs do not know',
      'invalid_stream',
      () =>
        editing((all) =>
          all.toSpliced(-1, 0, `event: x.y\ndata: {"type":"x.y","t":"${EVIL}"}\n\n`),
        ),
    ],
    ['gives the stream of another call', 'wrong_request', () => editing(() => old)],
    [
      'takes the proof of another call',
      'wrong_request|wrong_key|wrong_signature|wrong_stream|wrong_response',
      () => editing((all) => [...all.slice(0, -1), old.at(-1) ?? '']),
    ],
    [
      'leaves out the proof',
      'no_proof',
      () => editing((all) => all.with(-1, withoutProof(all.at(-1) ?? ''))),
    ],
    [
      'ends a stream with an error',
      'error_in_answer',
      () =>
        editing((all) => [...all.slice(0, 2), 'event: error\ndata: {"error":{"code":"x"}}\n\n']),
    ],
    [
      'answers in another dialect',
      'invalid_stream',
      () => ({
        meets: 'completions',
        async answer() {
          const given = await fetch(`${service.url}/v1/verified${other.path}`, {
            ...post({ ...other.body, stream: true }),
          })
          const headers = { 'content-type': 'text/event-stream' }
          return { status: 200, headers, body: await given.text() }
        },
      }),
    ],
  ])('a stream is an error when the gateway %s', async (_, code, attackOf) => {
    await expectRefused(clear, tried, { attack: attackOf(), code })
  })

  it('a caller of the proxy gets a stream that ends in an error when the gateway alters it', async () => {
    hostile.set(altering())
    const local = `${proxy.baseURL}${path.replace(/^\/anthropic\/v1/, '')}`
    const response = await fetch(local, post({ ...body, stream: true }))
    const { given } = await read(response)
    expect(eventsIn(given).some(isOf(last))).toBe(false)
    if (response.ok) expect(given).toMatch(/event: (response\.failed|error)\n.*"code":.*\n\n$/)
    else expect(response.status).toBe(400)
    expect(calls).toMatchObject([{ verdict: 'refused', proof: null }])
  })

  it('the official SDK rejects, through client and proxy, when the gateway cuts a stream', async () => {
    hostile.set(cutting())
    const options = { apiKey: service.apiKey, maxRetries: 0 }
    const { fetch: checked, baseURL, anthropicBaseURL } = clear
    const finals = [
      { fetch: checked, baseURL, messages: anthropicBaseURL },
      { fetch, baseURL: proxy.baseURL, messages: proxy.baseURL.replace(/\/v1$/, '') },
    ].map(({ messages, ...place }) =>
      tried === RESPONSES
        ? new OpenAI({ ...options, ...place }).responses.stream(body as never).finalResponse()
        : new Anthropic({ ...options, ...place, authToken: null, baseURL: messages }).messages
            .stream(body as never)
            .finalMessage(),
    )
    const settled = await Promise.allSettled(finals)
    expect(settled.map(({ status }) => status)).toEqual(['rejected', 'rejected'])
    expect(hostile.counts().altered).toBe(2)
  })

  it.each([
    ['another text', 'wrong_response', (text: string) => text.replaceAll('Pay Ann', 'Pay Eve')],
    ['no proof', 'no_proof', (text: string) => text.replace(/,?"affidavit":\{.*\}(?=[,}])/, '')],
  ])('a whole answer with %s is refused', async (_, code, change) => {
    hostile.set(rewriting(change))
    const answer = await clear.fetch(clear.baseURL + path, post(body))
    await expect(answer.json()).rejects.toMatchObject({ code })
    expect(hostile.counts().altered).toBe(1)
  })
})

describe('a hostile gateway before callers who encrypt', () => {
  const content = 'Write 1500 words'
  const long = {
    model: 'demo/lorem',
    max_tokens: 10_000,
    messages: [{ role: 'user', content }],
  }
  let foreign: readonly Uint8Array[] = []
  beforeAll(async () => {
    hostile.set(reframing((frames) => (foreign = frames)))
    const asked = post({ ...long, stream: true })
    const answered = await encrypted.fetch(encrypted.baseURL + MESSAGES.path, asked)
    expect((await read(answered)).fault).toBe(null)
    expect(foreign.length).toBeGreaterThan(3)
  })

  it.each<[string, string, (frames: readonly Uint8Array[]) => readonly Uint8Array[]]>([
    ['cuts it before its last frame', 'cut_stream', (all) => all.slice(0, -1)],
    ['alters its last frame', 'not_encrypted', (all) => all.with(-1, damage(all.at(-1) ?? none))],
    ['drops a frame', 'not_encrypted', (all) => all.toSpliced(1, 1)],
    ['takes a frame of another call', 'not_encrypted', (all) => all.with(1, foreign[1] ?? none)],
  ])('an encrypted stream of events is an error when the gateway %s', async (_, code, change) => {
    const sent = { ...MESSAGES, body: long }
    await expectRefused(encrypted, sent, { attack: reframing(change), code })
  })
})

it('every dialect of calls but chat has cases here', () => {
  const [, ...others] = CALL_DIALECTS
  expect(CASES.map((one) => one.path)).toEqual(others.map(({ paths }) => paths[0]))
})
