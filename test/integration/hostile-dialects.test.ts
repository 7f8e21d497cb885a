import Anthropic from '@anthropic-ai/sdk'
import OpenAI from 'openai'
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest'
import { CALL_DIALECTS } from '../../client/call-dialects.ts'
import { type Affidavit, connect } from '../../client/index.ts'
import {
  type CheckingProxy,
  type ProxiedCall,
  serveProxy,
} from '../../src/cli/proxy/serve-proxy.ts'
import { readExpectedService } from '../support/expected-service.ts'
import { EVIL, rewriting } from '../support/gateway-attacks/attack-case.ts'
import {
  type Attack,
  type HostileGateway,
  startHostileGateway,
} from '../support/hostile-gateway.ts'
import { type SharedAffidavit, useAffidavit } from '../support/use-affidavit.ts'

let service: SharedAffidavit
let hostile: HostileGateway
let affidavit: Affidavit
let proxy: CheckingProxy
const calls: ProxiedCall[] = []
beforeAll(async () => {
  service = await useAffidavit()
  hostile = await startHostileGateway(service.url)
  const { connect: options } = await readExpectedService(service)
  affidavit = await connect({ url: hostile.url, ...options, encrypt: false })
  proxy = await serveProxy({ affidavit, port: 0, onCall: (call) => void calls.push(call) })
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
const CASES: readonly Case[] = [
  {
    name: 'Responses',
    path: '/responses',
    body: { model: 'demo/echo', input: 'Pay Ann 5' },
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

for (const { name, path, body, last, delta } of CASES)
  describe(`a hostile gateway before callers of ${name}`, () => {
    /** Changes the events of the real gateway's stream. */
    const editing = (change: (events: readonly string[]) => readonly string[]) =>
      rewriting((text) => change(eventsIn(text)).join(''))
    const isOf = (type: string) => (event: string) => event.startsWith(`event: ${type}\n`)
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
      hostile.set(attackOf())
      const asked = post({ ...body, stream: true })
      const direct = await read(await affidavit.fetch(affidavit.baseURL + path, asked))
      expect(direct.fault).toMatch(new RegExp(`^(${code})$`))
      expect(eventsIn(direct.given).some(isOf(last))).toBe(false)
      expect(hostile.counts().altered).toBe(1)

      const local = `${proxy.baseURL}${path.replace(/^\/anthropic\/v1/, '')}`
      const response = await fetch(local, asked)
      const { given } = await read(response)
      expect(eventsIn(given).some(isOf(last))).toBe(false)
      if (response.ok) expect(given).toMatch(/event: (response\.failed|error)\n.*"code":.*\n\n$/)
      else expect(response.status).toBe(400)
      expect(calls).toMatchObject([{ verdict: 'refused' }])
    })

    it.each([
      ['cuts a stream before its last event', attacks[0]?.[2]],
      ['alters a piece of the text', attacks[2]?.[2]],
    ])('the official SDK rejects, through client and proxy, when the gateway %s', async (_, of) => {
      hostile.set(of?.() ?? null)
      const { apiKey } = service
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

it('every dialect of calls but chat has cases here', () => {
  const [, ...others] = CALL_DIALECTS
  expect(CASES.map((one) => one.path)).toEqual(others.map(({ paths }) => paths[0]))
})
