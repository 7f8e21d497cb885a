import { join } from 'node:path'
import OpenAI from 'openai'
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest'
import type { JsonObject } from '#attestation/json/value.ts'
import { AffidavitError, type AffidavitErrorCode } from '#client/errors.ts'
import { type Affidavit as Client, connect } from '#client/index.ts'
import { readExpectedService } from '../support/expected-service.ts'
import { type ForgedNotary, forgeNotary } from '../support/forged-notary.ts'
import { answerAttacks } from '../support/gateway-attacks/answer-attacks.ts'
import {
  damage,
  EVIL,
  EVIL_CHUNKS,
  EVIL_RESPONSE,
  editing,
  type ForgerName,
  json,
  reframing,
  rewriting,
  saying,
  textOf,
} from '../support/gateway-attacks/attack-case.ts'
import { documentAttacks, swappingNotaries } from '../support/gateway-attacks/document-attacks.ts'
import { streamAttacks } from '../support/gateway-attacks/stream-attacks.ts'
import {
  type Attack,
  both,
  type GatewayAnswer,
  type HostileGateway,
  type PassingCall,
  startHostileGateway,
} from '../support/hostile-gateway.ts'
import { type SharedAffidavit, useAffidavit } from '../support/use-affidavit.ts'

let service: SharedAffidavit
let hostile: HostileGateway
let client: Client
let options: Parameters<typeof connect>[0]
const forgers = new Map<ForgerName, ForgedNotary>()
const forge = (name: ForgerName): ForgedNotary => {
  const forger = forgers.get(name)
  if (forger === undefined) throw new Error(`there is no forger ${name}`)
  return forger
}

const HOUR_MS = 3_600_000

beforeAll(async () => {
  service = await useAffidavit()
  hostile = await startHostileGateway(service.url)
  const { connect: expected, boot, measurements } = await readExpectedService(service)
  // The attacker must read what it alters. Attacks on encrypted calls follow below.
  options = { url: hostile.url, apiKey: service.apiKey, encrypt: false, ...expected }
  const evil = { name: 'evil', origin: 'http://evil.example', path: '/', models: ['evil/*'] }
  const asExpected = {
    rootFile: join(service.dataFolder, 'nsm', 'root.pem'),
    measurements,
    boot,
  }
  const other = new Uint8Array(48).fill(7)
  const forms: Readonly<Record<ForgerName, Parameters<typeof forgeNotary>[0]>> = {
    trusted: asExpected,
    otherCode: { ...asExpected, measurements: { pcr0: other, pcr1: other, pcr2: other } },
    otherRoot: { ...asExpected, rootFile: null },
    otherConfiguration: {
      ...asExpected,
      boot: { ...boot, providers: [...(boot.providers as readonly JsonObject[]), evil] },
    },
    expired: { ...asExpected, now: () => Date.now() - 4 * HOUR_MS },
  }
  for (const [name, form] of Object.entries(forms))
    forgers.set(name as ForgerName, await forgeNotary(form))
  client = await connect(options)
})
afterEach(() => {
  hostile.set(null)
  hostile.pace(false)
})
afterAll(async () => {
  await hostile.stop()
})

let prompts = 0
/** The text with a different last character. */
const flipLast = (text: string) =>
  text.slice(0, -1) + String.fromCharCode((text.at(-1) ?? '').charCodeAt(0) ^ 1)

/** A request that is unique. */
const ask = (more: object = {}) => ({
  model: 'demo/echo',
  messages: [{ role: 'user' as const, content: `hostile gateway ${++prompts}: pay Ann 5` }],
  ...more,
})

function post(request: object, through = client, signal?: AbortSignal): Promise<Response> {
  return through.fetch(`${through.baseURL}/chat/completions`, {
    method: 'POST',
    headers: { 'content-type': 'application/json', authorization: `Bearer ${service.apiKey}` },
    body: JSON.stringify(request),
    ...(signal === undefined ? {} : { signal }),
  })
}

const openai = (through = client) =>
  new OpenAI({ baseURL: through.baseURL, apiKey: service.apiKey, fetch: through.fetch })

/** A caller's whole answer, or the reason why there is no answer. */
async function outcomeOf(call: () => Promise<unknown>): Promise<unknown> {
  try {
    return { given: await call() }
  } catch (fault) {
    return codeOf(fault)
  }
}

function codeOf(fault: unknown): unknown {
  if (fault instanceof AffidavitError) return fault.code
  return fault instanceof Error ? `${fault.name}: ${fault.message}` : fault
}

/** The text of a stream that the caller got, and how the stream ended. */
async function readStream(response: Promise<Response>) {
  let text = ''
  const end = await outcomeOf(async () => {
    const reader = (await response).body?.pipeThrough(new TextDecoderStream()).getReader()
    for (;;) {
      const { done, value } = (await reader?.read()) ?? { done: true }
      if (done) return text
      text += value
    }
  })
  return { text, end }
}

/** The attack of a table row must have met one call, and altered its answer. */
const expectApplied = () => expect(hostile.counts()).toEqual({ met: 1, altered: 1 })

const rows = <Case extends { readonly name: string; readonly code: AffidavitErrorCode }>(
  cases: readonly Case[],
) => cases.map((one) => [one.name, one.code, one] as const)

const WHOLE = answerAttacks(forge)
const STREAMED = streamAttacks(forge)

describe('the honest gateway behind the same harness', () => {
  it('the honest gateway gives whole answers and streams unaltered through the harness', async () => {
    const whole = (await (await post(ask())).json()) as { choices: { message: object }[] }
    expect(whole.choices[0]?.message).toMatchObject({
      content: `[demonstration] You said: hostile gateway ${prompts}: pay Ann 5`,
    })
    const { text } = await readStream(post(ask({ stream: true })))
    expect(text).toContain('Ann')
    expect(text.endsWith('data: [DONE]\n\n')).toBe(true)
  })

  it('the honest gateway gives answers and streams through the openai package', async () => {
    const said = () => `[demonstration] You said: hostile gateway ${prompts}: pay Ann 5`
    const whole = await openai().chat.completions.create(ask())
    expect(whole.choices[0]?.message.content).toBe(said())
    const stream = await openai().chat.completions.create({ ...ask(), stream: true })
    const parts: string[] = []
    for await (const chunk of stream) parts.push(chunk.choices[0]?.delta.content ?? '')
    expect(parts.join('')).toBe(said())
  })

  it.each<[string, Attack]>([
    ['JSON written in another way', editing(() => undefined)],
    [
      'JSON with its members in another order',
      rewriting((text) =>
        JSON.stringify(Object.fromEntries(Object.entries(JSON.parse(text)).reverse()), null, 2),
      ),
    ],
    [
      'a transaction of another hash, which only the anchor shows',
      editing((a) => (a.tx_hash = `0x${'00'.repeat(32)}`)),
    ],
  ])('the honest gateway is not taken for a hostile one for %s', async (_, attack) => {
    hostile.set(attack)
    expect(await (await post(ask())).json()).toHaveProperty('choices')
    expect(hostile.counts().met).toBe(1)
  })

  it.each<[string, (text: string) => string | AsyncIterable<string>]>([
    ['comments and ids', (text) => text.replaceAll('data: {', ': ping\nid: 7\nretry: 5\ndata: {')],
    ['no space before its data', (text) => text.replaceAll('data: ', 'data:')],
    ['an event for each byte', (text) => bytewise(text)],
  ])(
    'the honest gateway is not taken for a hostile one for a stream with %s',
    async (_, change) => {
      hostile.set(
        saying(async (call) => {
          const answer = await call.ask()
          return { ...answer, body: change(textOf(answer)) }
        }),
      )
      const { text, end } = await readStream(post(ask({ stream: true })))
      expect(end).toHaveProperty('given')
      expect(text).toContain('[DONE]')
      expectApplied()
    },
  )

  it('a forger with the root key and the expected measurements would fool a client', async () => {
    const fooled = await connectThrough(swappingNotaries(() => forge('trusted')))
    hostile.set(forged('trusted'))
    expect(await (await post(ask(), fooled)).json()).toMatchObject(EVIL_RESPONSE)
    expect((await readStream(post(ask({ stream: true }), fooled))).text).toContain(EVIL)
  })
})

async function* bytewise(text: string): AsyncIterable<string> {
  for (const character of text) yield character
}

/** A client that connects during the attack. */
async function connectThrough(attack: Attack | null): Promise<Client> {
  hostile.set(attack)
  try {
    return await connect(options)
  } finally {
    hostile.set(null)
  }
}

/** Answers EVIL, whole or streamed, signed by a forger. */
function forged(name: ForgerName): Attack {
  return saying(async (call) => {
    const request = JSON.parse(call.body) as JsonObject
    if (request.stream !== true)
      return json(await forge(name).answer({ request, response: EVIL_RESPONSE }))
    const chunks = await forge(name).stream({ request, chunks: EVIL_CHUNKS })
    const data = [...chunks.map((chunk) => JSON.stringify(chunk)), '[DONE]']
    return {
      status: 200,
      headers: { 'content-type': 'text/event-stream' },
      body: data.map((one) => `data: ${one}\n\n`).join(''),
    }
  })
}

describe('a gateway that shows more than the stream', () => {
  it.each<[string, string]>([
    ['a chunk', `data: {"choices":[{"index":0,"delta":{"content":"${EVIL}"}}]}\n\n`],
    ['the end twice', 'data: [DONE]\n\n'],
    ['an error', `event: error\ndata: {"error":{"message":"${EVIL}"}}\n\n`],
    ['anything', EVIL],
  ])('a gateway that shows more than the stream gets nothing past its end: %s', async (_, more) => {
    hostile.set(rewriting((text) => text + more))
    const { text, end } = await readStream(post(ask({ stream: true })))
    if (end === 'invalid_stream') expect(text).not.toContain('[DONE]')
    else expect(text.endsWith('}\n\ndata: [DONE]\n\n')).toBe(true)
    expect(text).not.toContain(EVIL)
    expectApplied()
  })
})

describe('a gateway that says no more', () => {
  it('a gateway that says no more keeps a caller waiting only until he gives up', async () => {
    for (const stream of [false, true]) {
      hostile.set(
        saying(async (call) => {
          const answer = await call.ask()
          return { ...answer, body: textOf(answer).slice(0, 400), after: 'stall' }
        }),
      )
      const given = new AbortController()
      const reply = post(ask({ stream }), client, given.signal)
      const read = readStream(reply)
      await expect.poll(() => hostile.counts().altered).toBe(1)
      given.abort()
      expect((await read).end).not.toHaveProperty('given')
    }
  })
})

describe('a gateway that alters whole answers', () => {
  it.each(rows(WHOLE))(
    'a whole answer is refused when the gateway %s: %s',
    async (_, code, { attack, request }) => {
      hostile.set(attack)
      expect(await outcomeOf(async () => (await post(ask(request))).text())).toBe(code)
      expectApplied()
    },
  )
})

describe('a gateway that answers with an error', () => {
  it.each([400, 404, 429, 500])(
    'an error of status %d that the gateway makes up gives no completion under it',
    async (status) => {
      const send = async (attack: Attack) => {
        hostile.set(attack)
        const reply = await post(ask())
        expect(reply.ok).toBe(false)
        return outcomeOf(() => reply.json())
      }
      expect(await send(saying(() => json({ error: { message: 'no' } }, status)))).toEqual({
        given: { error: { message: 'no' } },
      })
      const evil = [EVIL_RESPONSE, { error: { message: 'no' }, ...EVIL_RESPONSE }]
      for (const body of evil)
        expect(await send(saying(() => json(body, status)))).not.toHaveProperty('given.choices')
    },
  )
})

describe('a gateway that withholds an answer', () => {
  it('an error that hides an answer is not repeated by the SDK, and a later call shows that it may have been made', async () => {
    let calls = 0
    hostile.set(
      saying(async (call) => {
        const answer = await call.ask()
        return ++calls === 1 ? json({ error: { message: 'try again' } }, 503) : answer
      }),
    )
    const request = ask()
    await expect(openai().chat.completions.create(request)).rejects.toMatchObject({ status: 503 })
    expect(hostile.counts()).toEqual({ met: 1, altered: 1 })
    const answer = await openai().chat.completions.create(request)
    expect(answer).toMatchObject({ receipt: { attempt: 2 } })
    const { hash } = answer as unknown as { readonly hash: string }
    const proof = client.proofs.get(hash)
    expect(proof?.checks.find(({ name }) => name === 'attempt')).toMatchObject({
      outcome: 'not checked',
      detail: 'asked 2 times, sent 2 times; 1 without an answer, which may have been made',
    })
    expect(proof?.unanswered).toEqual([{ notary: proof?.notary, times: 1 }])
  })
})

describe('a gateway that alters streams', () => {
  // Each attack at one of two paces: as it comes, or event by event.
  it.each(STREAMED.map((one, at) => [one.name, one.code, at % 2 === 0, one] as const))(
    'a stream ends in an error when the gateway %s: %s; event by event: %s',
    async (_, code, isPaced, { attack, request }) => {
      hostile.set(attack)
      hostile.pace(isPaced)
      const { text, end } = await readStream(post(ask({ stream: true, ...request })))
      expect(end).toBe(code)
      expect(text).not.toContain('[DONE]')
      expectApplied()
    },
  )

  it.each(rows(STREAMED.filter((_, at) => at % 5 === 0)))(
    'a held stream gives no text when the gateway %s: %s',
    async (_, code, { attack, request }) => {
      const holding = await held()
      hostile.set(attack)
      const { text, end } = await readStream(post(ask({ stream: true, ...request }), holding))
      expect({ text, end }).toEqual({ text: '', end: code })
      expectApplied()
    },
  )

  it('the openai package, asked once, gives neither an altered answer nor an altered stream', async () => {
    const [whole, streamed] = [WHOLE[0], STREAMED[0]]
    hostile.set(whole?.attack ?? null)
    expect(await outcomeOf(() => openai().chat.completions.create(ask()))).toBe(whole?.code)
    expectApplied()
    hostile.set(streamed?.attack ?? null)
    const ended = outcomeOf(async () => {
      const stream = await openai().chat.completions.create({ ...ask(), stream: true })
      for await (const _ of stream);
    })
    expect(await ended).toBe(streamed?.code)
    expectApplied()
  })
})

let holding: Promise<Client> | null = null
/** A client that gives no part of a stream before the whole stream was checked. */
function held(): Promise<Client> {
  holding ??= connect({ ...options, hold: true })
  return holding
}

describe('a gateway that shows other enclaves', () => {
  it.each(rows(documentAttacks(forge)))(
    'a client does not connect when the gateway %s: %s',
    async (_, code, { attack, cause }) => {
      hostile.set(attack)
      const fault = await connect({ ...options, timeoutMs: 2_000 }).then(
        () => null,
        (error: unknown) => error,
      )
      expect(codeOf(fault)).toBe(code)
      if (cause !== undefined) expect(codeOf((fault as Error).cause)).toBe(cause)
      expect(hostile.counts().altered).toBeGreaterThan(0)
    },
  )

  const swaps: readonly ForgerName[] = ['otherCode', 'otherRoot', 'otherConfiguration', 'expired']
  it.each(swaps)(
    'answers of %s, after a client connected, are refused with its document or without',
    async (name) => {
      for (const documents of [null, swappingNotaries(() => forge(name))]) {
        const connected = await connectThrough(null)
        hostile.set(documents === null ? forged(name) : both(forged(name), documents))
        const whole = () => post(ask(), connected).then((reply) => reply.text())
        expect(await outcomeOf(whole)).toBe('unknown_notary')
        const { text, end } = await readStream(post(ask({ stream: true }), connected))
        expect(end).toBe('unknown_notary')
        expect(text).not.toContain('[DONE]')
      }
    },
  )
})

describe('a gateway that alters encrypted calls', () => {
  let encrypted: Client
  beforeAll(async () => {
    encrypted = await connect({ ...options, encrypt: true })
  })

  const answered = (change: (answer: GatewayAnswer) => GatewayAnswer) =>
    saying(async (call) => change(await call.ask()))
  let spliced: readonly Uint8Array[] = []
  const withSpliced = reframing((frames) => frames.with(0, spliced[0] ?? new Uint8Array()))

  it.each<[string, Attack, AffidavitErrorCode, AffidavitErrorCode]>([
    ['drops a frame', reframing((all) => all.slice(1)), 'invalid_answer', 'not_encrypted'],
    ['drops the last frame', reframing((all) => all.slice(0, -1)), 'invalid_answer', 'cut_stream'],
    [
      'repeats a frame',
      reframing((all) => all.flatMap((frame) => [frame, frame])),
      'not_encrypted',
      'not_encrypted',
    ],
    ['damages a frame', reframing((all) => all.map(damage)), 'not_encrypted', 'not_encrypted'],
    [
      'ends within a frame',
      reframing((all) =>
        all.map((frame, at) => (at === all.length - 1 ? frame.subarray(0, 30) : frame)),
      ),
      'not_encrypted',
      'not_encrypted',
    ],
    ['splices a frame of another call', withSpliced, 'not_encrypted', 'not_encrypted'],
    [
      'strips the nonce',
      answered((answer) => ({ ...answer, headers: { 'content-type': 'application/json' } })),
      'not_encrypted',
      'not_encrypted',
    ],
    ['answers in the clear', saying(() => json(EVIL_RESPONSE)), 'not_encrypted', 'not_encrypted'],
  ])(
    'an encrypted call ends in an error when the gateway %s',
    async (_, attack, whole, streamed) => {
      for (const [stream, code] of [
        [false, whole],
        [true, streamed],
      ] as const) {
        hostile.set(reframing((frames) => (spliced = frames)))
        await (await post(ask({ stream }), encrypted)).text()
        hostile.set(attack)
        const { text, end } = await readStream(post(ask({ stream }), encrypted))
        expect(end).toBe(code)
        expect(text).not.toContain('[DONE]')
        expectApplied()
      }
    },
  )

  it('an encrypted call that the gateway makes again is refused by the enclave', async () => {
    let repeated: GatewayAnswer | null = null
    hostile.set(
      saying(async (call) => {
        const answer = await call.ask()
        repeated = await call.ask()
        return answer
      }),
    )
    const answer = await (await post(ask(), encrypted)).json()
    expect(answer).toMatchObject({ receipt: { attempt: 1, encrypted: true } })
    expect(repeated).toMatchObject({ status: 409 })
  })

  it.each<[string, (call: PassingCall, other: PassingCall) => Promise<GatewayAnswer>, number]>([
    [
      "another call's encapsulated key",
      (call, { headers }) =>
        call.ask(call.body, { 'ehbp-encapsulated-key': headers['ehbp-encapsulated-key'] ?? '' }),
      422,
    ],
    [
      "another call's credential",
      (call, { headers }) =>
        call.ask(call.body, {
          'fine-tune-authorization': headers['fine-tune-authorization'] ?? '',
        }),
      400,
    ],
    [
      "another notary's name",
      (call) => call.ask(call.body, { 'affidavit-notary': `0x${'ab'.repeat(20)}` }),
      422,
    ],
    ['a body that was cut', (call) => call.ask(call.body.slice(0, -4)), 400],
    // The last byte is changed to a different one.
    ['a body that was altered', (call) => call.ask(flipLast(call.body)), 422],
  ])(
    'an encrypted call that the gateway sends with %s makes no completion',
    async (_, alter, status) => {
      let other: PassingCall | null = null
      let seen: GatewayAnswer | null = null
      const send = () =>
        encrypted.fetch(`${encrypted.baseURL}/chat/completions`, {
          method: 'POST',
          headers: {
            'content-type': 'application/json',
            authorization: `Bearer ${service.apiKey}`,
            'fine-tune-authorization': 'Bearer a-credential-of-the-caller',
          },
          body: JSON.stringify(ask()),
        })
      hostile.set(
        saying(async (call) => {
          if (other === null) {
            other = call
            return json({ error: { message: 'kept' } }, 503)
          }
          seen = await alter(call, other)
          return seen
        }),
      )
      await send()
      // The enclave reports twice that the key is gone; the caller gets an error to retry.
      expect((await send()).status).toBe(status === 422 ? 503 : status)
      expect(seen).toMatchObject({ status })
    },
  )

  it('an encryption key that the gateway names itself is not used', async () => {
    const { notaries } = encrypted
    const own = { public_key: 'ab'.repeat(32), not_before: 1, not_after: 7_000 }
    hostile.set({
      meets: 'documents',
      async answer(call) {
        const answer = await call.ask()
        if (call.path !== '/v1/notaries') return answer
        const list = JSON.parse(textOf(answer))
        for (const entry of list.notaries)
          for (const key of entry.encryption_keys) key.public_key = own.public_key
        return { ...answer, body: JSON.stringify(list) }
      },
    })
    expect(notaries.length).toBeGreaterThan(0)
    expect(await outcomeOf(() => connect({ ...options, encrypt: true }))).toBe('no_encryption_key')
  })
})
