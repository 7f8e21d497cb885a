import Anthropic from '@anthropic-ai/sdk'
import OpenAI from 'openai'
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest'
import { CALL_DIALECTS } from '#client/call-dialects.ts'
import { type Affidavit, connect } from '#client/index.ts'
import { type CheckingProxy, type ProxiedCall, serveProxy } from '#src/cli/proxy/serve-proxy.ts'
import { AMBIGUOUS_STREAMS, makeAmbiguous } from '../support/ambiguous-streams.ts'
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
/** A client of the hostile gateway, and a proxy with that client. */
type Reader = { readonly affidavit: Affidavit; readonly proxy: CheckingProxy }
let clear: Reader
let encrypted: Reader
const calls: ProxiedCall[] = []

beforeAll(async () => {
  service = await useAffidavit()
  hostile = await startHostileGateway(service.url)
  const { connect: options } = await readExpectedService(service)
  const open = async (encrypt: boolean) => {
    const affidavit = await connect({ url: hostile.url, ...options, encrypt })
    const onCall = (call: ProxiedCall) => void calls.push(call)
    return { affidavit, proxy: await serveProxy({ affidavit, port: 0, onCall }) }
  }
  clear = await open(false)
  encrypted = await open(true)
})
afterEach(() => {
  hostile.set(null)
  calls.length = 0
})
afterAll(async () => {
  await clear.proxy.close()
  await encrypted.proxy.close()
  await hostile.stop()
})

type Case = {
  readonly name: keyof typeof AMBIGUOUS_STREAMS
  readonly path: string
  readonly body: object
  /** A request whose answer has many frames. */
  readonly long: object
  /** The type of the last event. */
  readonly last: string
  /** The type of the event with a piece of the text. */
  readonly delta: string
}
const LONG_TEXT = 'Write 1500 words'
const CASES: readonly Case[] = [
  {
    name: 'Responses',
    path: '/responses',
    body: { model: 'demo/echo', input: 'Pay Ann 5' },
    long: { model: 'demo/lorem', input: LONG_TEXT },
    last: 'response.completed',
    delta: 'response.output_text.delta',
  },
  {
    name: 'Messages',
    path: '/anthropic/v1/messages',
    body: {
      model: 'demo/echo',
      max_tokens: 100,
      messages: [{ role: 'user', content: 'Pay Ann 5' }],
    },
    long: {
      model: 'demo/lorem',
      max_tokens: 10_000,
      messages: [{ role: 'user', content: LONG_TEXT }],
    },
    last: 'message_stop',
    delta: 'content_block_delta',
  },
]

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

/** Checks that client and proxy give a stream as an error, with one of these codes. */
async function expectRefused(
  { affidavit, proxy }: Reader,
  { path, body, last }: Case,
  { attack, code }: { readonly attack: Attack; readonly code: string },
): Promise<void> {
  hostile.set(attack)
  const kept = affidavit.proofs.size
  const asked = post({ ...body, stream: true })
  const direct = await read(await affidavit.fetch(affidavit.baseURL + path, asked))
  expect(direct.fault).toMatch(new RegExp(`^(${code})$`))
  expect(eventsIn(direct.given).some(isOf(last))).toBe(false)
  expect(hostile.counts().altered).toBe(1)

  const response = await fetch(localOf(proxy, path), asked)
  const { given } = await read(response)
  expect(eventsIn(given).some(isOf(last))).toBe(false)
  if (response.ok) expect(given).toMatch(/event: (response\.failed|error)\n.*"code":.*\n\n$/)
  else expect(response.status).toBe(400)
  expect(calls).toMatchObject([{ verdict: 'refused', proof: null }])
  expect(affidavit.proofs.size).toBe(kept)
}

const localOf = ({ baseURL }: CheckingProxy, path: string) =>
  `${baseURL}${path.replace(/^\/anthropic\/v1/, '')}`

for (const tried of CASES) {
  const { name, path, body, delta } = tried
  describe(`a hostile gateway before callers of ${name}`, () => {
    /** Changes the events of the real gateway's stream. */
    const editing = (change: (events: readonly string[]) => readonly string[]) =>
      rewriting((text) => change(eventsIn(text)).join(''))
    const other = CASES.find((one) => one.name !== name) as Case
    let old: readonly string[] = []
    beforeAll(async () => {
      const kept = await fetch(`${service.url}/v1/verified${path}`, {
        ...post({ ...body, stream: true }),
      })
      old = eventsIn(await kept.text())
    })

    const attacks: readonly [string, string, () => Attack][] = [
      [
        'cuts a stream before its last event',
        'cut_stream',
        () => editing((all) => all.slice(0, -1)),
      ],
      [
        'cuts a stream after its first event',
        'cut_stream',
        () => editing((all) => all.slice(0, 1)),
      ],
      [
        'alters a piece of the text',
        'invalid_stream|wrong_stream|wrong_response',
        () =>
          editing((all) => {
            const at = all.findIndex(isOf(delta))
            return all.with(at, (all[at] ?? '').replace(/"(delta|text)":"[^"]*"/, `"$1":"${EVIL}"`))
          }),
      ],
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
    ]

    it.each(attacks)('a stream is an error when the gateway %s', async (_, code, attackOf) => {
      await expectRefused(clear, tried, { attack: attackOf(), code })
    })

    it.each(AMBIGUOUS_STREAMS[name])(
      'a stream is an error when it has $what',
      async (ambiguous) => {
        const attack = editing((all) => makeAmbiguous(all, ambiguous))
        await expectRefused(clear, tried, { attack, code: 'invalid_stream' })
      },
    )

    it.each([
      ['cuts a stream before its last event', attacks[0]?.[2]],
      ['alters a piece of the text', attacks[2]?.[2]],
    ])('the official SDK rejects, through client and proxy, when the gateway %s', async (_, of) => {
      hostile.set(of?.() ?? null)
      const { apiKey } = service
      const { affidavit, proxy } = clear
      const root = proxy.baseURL.replace(/\/v1$/, '')
      const finals = [
        {
          fetch: affidavit.fetch,
          baseURL: affidavit.baseURL,
          messages: affidavit.anthropicBaseURL,
        },
        { fetch, baseURL: proxy.baseURL, messages: root },
      ].map(({ fetch: send, baseURL, messages }) => {
        const openai = new OpenAI({ baseURL, apiKey, fetch: send, maxRetries: 0 })
        const anthropic = new Anthropic({
          baseURL: messages,
          apiKey,
          authToken: null,
          fetch: send,
          maxRetries: 0,
        })
        return path === '/responses'
          ? openai.responses.stream(body as never).finalResponse()
          : anthropic.messages.stream(body as never).finalMessage()
      })
      const settled = await Promise.allSettled(finals)
      expect(settled.map(({ status }) => status)).toEqual(['rejected', 'rejected'])
      expect(hostile.counts().altered).toBe(2)
    })

    it('a whole answer with another text, or without its proof, is refused', async () => {
      const { affidavit } = clear
      for (const change of [
        (text: string) => text.replaceAll('Pay Ann', 'Pay Eve'),
        (text: string) => text.replace(/,?"affidavit":\{.*\}(?=[,}])/, ''),
      ]) {
        hostile.set(rewriting(change))
        const answer = await affidavit.fetch(affidavit.baseURL + path, post(body))
        await expect(answer.json()).rejects.toMatchObject({
          code: expect.stringMatching(/^(wrong_response|no_proof)$/),
        })
        expect(hostile.counts().altered).toBe(1)
      }
    })
  })

  describe(`a hostile gateway before callers of ${name} who encrypt`, () => {
    let foreign: readonly Uint8Array[] = []
    const asked = () => post({ ...tried.long, stream: true })
    beforeAll(async () => {
      const { affidavit } = encrypted
      hostile.set(reframing((frames) => (foreign = frames)))
      const { fault } = await read(await affidavit.fetch(affidavit.baseURL + path, asked()))
      expect(fault).toBe(null)
      expect(foreign.length).toBeGreaterThan(3)
    })

    it.each<[string, string, (frames: readonly Uint8Array[]) => readonly Uint8Array[]]>([
      ['cuts a stream before its last event', 'cut_stream', (all) => all.slice(0, -1)],
      ['cuts a stream after its first frame', 'cut_stream', (all) => all.slice(0, 1)],
      [
        'cuts a stream within its last frame',
        'not_encrypted',
        (all) => all.with(-1, (all.at(-1) ?? none).subarray(0, -1)),
      ],
      [
        'cuts a stream within the length of a frame',
        'not_encrypted',
        (all) => [...all.slice(0, 1), (all[1] ?? none).subarray(0, 2)],
      ],
      ['alters a frame', 'not_encrypted', (all) => all.with(1, damage(all[1] ?? none))],
      ['alters the last frame', 'not_encrypted', (all) => all.with(-1, damage(all.at(-1) ?? none))],
      ['doubles a frame', 'not_encrypted', (all) => all.toSpliced(1, 0, all[1] ?? none)],
      [
        'moves a frame',
        'not_encrypted',
        (all) => all.with(1, all[2] ?? none).with(2, all[1] ?? none),
      ],
      ['drops the first frame', 'not_encrypted', (all) => all.slice(1)],
      ['drops a frame', 'not_encrypted', (all) => all.toSpliced(1, 1)],
      ['takes a frame of another call', 'not_encrypted', (all) => all.with(1, foreign[1] ?? none)],
      [
        'takes the last frame of another call',
        'not_encrypted',
        (all) => all.with(-1, foreign.at(-1) ?? none),
      ],
      ['gives the frames of another call', 'not_encrypted', () => foreign],
      ['gives an empty stream', 'cut_stream', () => []],
    ])('an encrypted stream is an error when the gateway %s', async (_, code, change) => {
      const sent = { ...tried, body: tried.long }
      await expectRefused(encrypted, sent, { attack: reframing(change), code })
    })

    it.each<[string, (frames: readonly Uint8Array[]) => Uint8Array]>([
      ['bytes that are no frame', () => Buffer.from(`event: x\ndata: ${EVIL}\n\n`)],
      ['a frame of another call', () => foreign[1] ?? none],
      ['the last frame again', (frames) => frames.at(-1) ?? none],
    ])('no caller receives %s after the end of an encrypted stream', async (_, more) => {
      const { affidavit, proxy } = encrypted
      hostile.set(reframing((frames) => [...frames, more(frames)]))
      const direct = await read(await affidavit.fetch(affidavit.baseURL + path, asked()))
      const local = await read(await fetch(localOf(proxy, path), asked()))
      expect(hostile.counts().altered).toBe(2)
      // The reader may see them before it has closed the stream, which is then refused.
      const isChecked = [direct.fault === null, calls[0]?.verdict === 'checked']
      for (const [at, { given }] of [direct, local].entries()) {
        const ends = eventsIn(given).filter(isOf(tried.last))
        expect(ends).toHaveLength(isChecked[at] === true ? 1 : 0)
        if (isChecked[at] === true) expect(eventsIn(given).filter(Boolean).at(-1)).toBe(ends[0])
        expect(given).not.toContain(EVIL)
      }
    })
  })
}

it('every dialect of calls but chat has cases here', () => {
  const [, ...others] = CALL_DIALECTS
  expect(CASES.map((one) => one.path)).toEqual(others.map(({ paths }) => paths[0]))
})
