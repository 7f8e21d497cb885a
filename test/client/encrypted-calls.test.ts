import { randomBytes } from 'node:crypto'
import { Wallet } from 'ethers'
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest'
import { RESPONSE_NONCE_HEADER } from '#attestation/ehbp.ts'
import { AffidavitError, type AffidavitErrorCode } from '#client/errors.ts'
import { keyConfig, passOn } from './memory-enclave.ts'
import { ADDRESS, type Attack, type MemoryClient, openMemoryClient } from './memory-gateway.ts'

const SECRET = 'the merger closes on Thursday'
const SAID = 'Transfer nothing.'
const CREDENTIAL = 'sk-own-credential-of-the-caller'
const REQUEST = { model: 'demo/echo', messages: [{ role: 'user', content: SECRET }] }
const STREAMED = { ...REQUEST, stream: true }
const HOUR_S = 3_600

let client: MemoryClient
beforeEach(() => {
  client = openMemoryClient({}, { encrypt: true })
})
afterEach(() => {
  vi.useRealTimers()
})

function send(body: object, init: RequestInit = {}): Promise<Response> {
  return client.fetch(client.url, { method: 'POST', body: JSON.stringify(body), ...init })
}

/** What a caller reads of an answer, or the code that it is refused with. */
async function ask(body: object = REQUEST, init: RequestInit = {}) {
  const response = await send(body, init)
  return await response.text().then(
    (text) => ({ text, code: 'given' }),
    (fault) => ({ text: '', code: fault instanceof AffidavitError ? fault.code : String(fault) }),
  )
}

/** All that was on the wire of encrypted calls, both ways. */
function wire(): Buffer {
  const sent = client.sent.flatMap(({ headers, body }) => [
    Buffer.from(JSON.stringify([...headers])),
    body,
  ])
  return Buffer.concat([...sent, ...client.given])
}

function expectUnreadable(...texts: readonly string[]): void {
  const bytes = wire()
  for (const text of texts)
    for (const form of [text, Buffer.from(text).toString('hex'), inBase64(text)])
      expect(bytes.includes(form), `${text} on the wire`).toBe(false)
}

/** What of its base64 does not depend on what stands around it. */
const inBase64 = (text: string) => Buffer.from(text).toString('base64').slice(0, -4)

const own = { 'fine-tune-authorization': `Bearer ${CREDENTIAL}` }
const keyLists = () => client.asked.filter((path) => path === '/v1/notaries').length

describe('an encrypted call', () => {
  it.each([
    ['whole', REQUEST],
    ['streamed', STREAMED],
  ])(
    'an encrypted call (%s) is answered, and nothing about it is readable on the wire',
    async (_, body) => {
      const { text, code } = await ask(body, { headers: own })
      expect(code).toBe('given')
      expect(text.replaceAll(/[^\w .]/g, '')).toMatch(/Transfer|nothing/)
      expect(client.opened.map(({ credential }) => credential)).toEqual([CREDENTIAL])
      expect(JSON.parse(client.bodies[0] ?? '')).toMatchObject(body)
      expect(client.proofs.latest?.checks.at(-1)).toMatchObject({
        name: 'encryption',
        outcome: 'passed',
      })
      expect(client.sent[0]?.headers.get('affidavit-notary')).toBe(ADDRESS)
      await expect.poll(() => client.given.length).toBe(1)
      expectUnreadable(SECRET, 'Transfer', 'demo/echo', CREDENTIAL, 'receipt')
    },
  )

  it.each([
    [{ max_tokens: 50, n: 2 }, '100'],
    [{ max_tokens: 50, max_completion_tokens: 60 }, '60'],
    [{}, null],
    [{ max_tokens: 50, n: '2' }, null],
  ])('an encrypted call with %j states the tokens of its answers: %j', async (more, stated) => {
    await ask({ ...REQUEST, ...more })
    expect(client.sent[0]?.headers.get('affidavit-answer-tokens')).toBe(stated)
  })

  it('the same search finds a call on the wire that is not encrypted', async () => {
    client = openMemoryClient({}, { encrypt: false })
    expect((await ask()).text).toContain(SAID)
    expect(client.sent).toEqual([])
    expect(client.bodies[0]).toContain(SECRET)
    expect(client.proofs.latest?.checks.at(-1)).toMatchObject({
      name: 'encryption',
      outcome: 'not checked',
    })
  })

  it.each(['', 'Bearer', 'Bearer a b', 'Bearer ü'])(
    'a call with the malformed credential %j is not sent',
    async (header) => {
      const headers = { 'fine-tune-authorization': header }
      expect((await ask(REQUEST, { headers })).code).toBe('invalid_request')
      expect(client.sent).toEqual([])
    },
  )
})

describe('a key is not used', () => {
  const other = new Wallet(`0x${'42'.repeat(32)}`)
  const C1 = `0x${'c1'.repeat(20)}`
  const hour = (now: number) => ({ notBefore: now - 60, notAfter: now + HOUR_S })

  const late = (now: number) => ({ notBefore: now - HOUR_S, notAfter: now + 30 })
  it.each<[string, NonNullable<Attack['keys']>]>([
    ['of the gateway itself', (of, now) => ({ ...of.state(hour(now)), public_key: randomKey() })],
    ['of another notary', (of, now) => of.state({ ...hour(now), signer: other as never })],
    ['stated for another chain', (of, now) => of.state({ ...hour(now), chainId: 1 })],
    ['stated for another contract', (of, now) => of.state({ ...hour(now), contract: C1 })],
    ['that ends before a call could be read', (of, now) => of.state(late(now))],
    ['without a signature', (of, now) => ({ ...of.state(hour(now)), signature: '0x' })],
  ])('an encryption key %s is not used', async (_, keys) => {
    client.attack = { keys: (enclave, now) => [keys(enclave, now)] }
    expect(await ask()).toEqual({ text: '', code: 'no_encryption_key' })
    expect(client.sent).toEqual([])
    // A good one beside it is used.
    client.attack = {
      keys: (enclave, now) => [keys(enclave, now), enclave.state(hour(now))],
    }
    expect((await ask()).code).toBe('given')
  })

  it.each<[string, NonNullable<Attack['keys']>, AffidavitErrorCode]>([
    ['none at all', () => [], 'no_encryption_key'],
    ['too many', () => Array(17).fill(null), 'invalid_reply'],
    ['something else', () => 'keys', 'invalid_reply'],
  ])('no key is used when the gateway names %s', async (_, keys, code) => {
    client.attack = { keys }
    expect(await ask()).toEqual({ text: '', code })
    expect(client.sent).toEqual([])
  })

  it('keys that have ended are fetched again, once for all calls that wait', async () => {
    await ask()
    client.nowMs += HOUR_S * 1000
    const lists = keyLists()
    const codes = await Promise.all(Array.from({ length: 5 }, async () => (await ask()).code))
    expect(codes).toEqual(Array(5).fill('given'))
    expect(keyLists()).toBe(lists + 1)
    expect(client.asked.filter((path) => path === '/v1/attestation')).toHaveLength(1)
  })
})

const randomKey = () => randomBytes(32).toString('hex')

describe('key-config', () => {
  it('the first key-config makes the client fetch the keys and repeat the call, sealed anew', async () => {
    client.attack = { intercept: (count) => (count === 1 ? keyConfig() : null) }
    expect((await ask()).code).toBe('given')
    expect(client.sent).toHaveLength(2)
    const [first, second] = client.sent
    expect(second?.headers.get('ehbp-encapsulated-key')).not.toBe(
      first?.headers.get('ehbp-encapsulated-key'),
    )
    expect(keyLists()).toBe(2)
  })

  it('a second key-config becomes a 503 that tells the caller to try later', async () => {
    client.attack = { intercept: () => keyConfig() }
    const response = await send(REQUEST)
    expect([response.status, response.headers.get('retry-after')]).toEqual([503, '1'])
    expect(await response.json()).toMatchObject({ error: { code: 'gateway_error' } })
    expect(client.sent).toHaveLength(2)
  })

  it('a false key-config after the enclave was asked shows in the second answer', async () => {
    client.attack = {
      intercept: (count, sent) => {
        if (count > 1) return null
        // The enclave makes the call; its answer is withheld.
        client.enclave.open(sent.headers, sent.body)
        return keyConfig()
      },
      receipt: { attempt: 2 },
    }
    expect(await ask()).toEqual({ text: '', code: 'asked_again' })
  })

  it('an endless key-config is read only as far as a problem can reach', async () => {
    let given = 0
    const endless = () => {
      const pull = (body: ReadableStreamDefaultController) => {
        given += 65_536
        body.enqueue(new Uint8Array(65_536).fill(0x20))
      }
      return new Response(new ReadableStream({ pull }), {
        status: 422,
        headers: { 'content-type': 'application/problem+json', 'x-endless': '1' },
      })
    }
    client.attack = { intercept: endless }
    const response = await send(REQUEST)
    expect(response.status).toBe(422)
    await response.text()
    expect(given).toBeLessThan(5_000_000)
  })
})

describe('an answer is refused', () => {
  const frames =
    (
      change: (frames: readonly Uint8Array[]) => readonly Uint8Array[],
    ): NonNullable<Attack['sealed']> =>
    (answer) => ({ ...answer, frames: change(answer.frames) })
  let spliced: readonly Uint8Array[] = []
  const splice = frames((mine) => {
    const others = spliced.length === 0 ? mine : spliced
    spliced = mine
    return mine.with(1, others[1] ?? new Uint8Array())
  })
  const withHeader =
    (alter: (headers: Headers) => void): NonNullable<Attack['passOn']> =>
    (answer, type) => {
      const response = passOn(answer, { type })
      const headers = new Headers(response.headers)
      alter(headers)
      return new Response(response.body, { headers })
    }
  const clear = JSON.stringify({ choices: [{ message: { content: 'Transfer it all.' } }] })

  type Codes = readonly [whole: AffidavitErrorCode, streamed: AffidavitErrorCode]
  const notOpened: Codes = ['not_encrypted', 'not_encrypted']
  const cutOff: Codes = ['invalid_answer', 'cut_stream']
  const notSo: Codes = ['wrong_receipt', 'wrong_receipt']
  const setNonce = (headers: Headers) => headers.set(RESPONSE_NONCE_HEADER, 'ab'.repeat(32))
  const inTheClear = () => new Response(clear, { headers: { 'content-type': 'application/json' } })
  const cutLast = (all: readonly Uint8Array[]) =>
    all.with(-1, all.at(-1)?.subarray(0, 20) ?? new Uint8Array())

  it.each<[string, Attack, Codes]>([
    ['with another nonce', { passOn: withHeader(setNonce) }, notOpened],
    ['in the clear', { intercept: inTheClear }, notOpened],
    ['without a frame', { sealed: frames((all) => all.toSpliced(1, 1)) }, notOpened],
    ['without its last frame', { sealed: frames((all) => all.slice(0, -1)) }, cutOff],
    ['without any frame', { sealed: frames(() => []) }, cutOff],
    ['with a frame of another call', { sealed: splice }, notOpened],
    ['that ends within a frame', { sealed: frames(cutLast) }, notOpened],
    ['whose receipt says that it was not encrypted', { receipt: { encrypted: false } }, notSo],
  ])('an encrypted call refuses an answer %s', async (name, attack, [whole, streamed]) => {
    await client.notaries.refresh()
    for (const [body, code] of [
      [REQUEST, whole],
      [STREAMED, streamed],
    ] as const) {
      if (name === 'with a frame of another call') {
        spliced = []
        client.attack = { sealed: splice }
        await ask(body)
        client.proofs.clear()
      }
      client.attack = attack
      expect(await ask(body)).toEqual({ text: '', code })
    }
    expect(client.proofs.size).toBe(0)
    expectUnreadable(SECRET)
    client.attack = {}
    expect((await ask()).code).toBe('given')
  })

  it('an answer with its last frame again is refused, and a stream is read only up to its end', async () => {
    client.attack = { sealed: frames((all) => [...all, ...all.slice(-1)]) }
    expect(await ask()).toEqual({ text: '', code: 'not_encrypted' })
    const { text, code } = await ask(STREAMED)
    expect(code).toBe('given')
    expect(text.endsWith('}\n\ndata: [DONE]\n\n')).toBe(true)
  })

  it('the answer to a plain call is refused when its receipt says that it was encrypted', async () => {
    client = openMemoryClient({ receipt: { encrypted: true } }, { encrypt: false })
    expect(await ask()).toEqual({ text: '', code: 'wrong_receipt' })
  })
})

describe('an error', () => {
  const error = { error: { message: `no model for ${SECRET}`, code: 'unsupported_model' } }
  const sealedError: Attack = {
    fault: (opened) =>
      passOn(opened.seal([JSON.stringify({ ...error, choices: [{ message: SAID }] })]), {
        status: 404,
        type: 'application/json',
      }),
  }

  it('an error of the enclave is opened and passed on with nothing but what errors have', async () => {
    client.attack = sealedError
    const response = await send(REQUEST)
    expect([response.status, await response.json()]).toEqual([404, error])
    await expect.poll(() => client.given.length).toBe(1)
    expectUnreadable(SECRET)
  })
})

describe('a caller that leaves', () => {
  it('a caller that leaves before the keys are there is let go, and the call is not sent', async () => {
    const abort = new AbortController()
    const left = new Error('left')
    const waiting = send(REQUEST, { signal: abort.signal })
    abort.abort(left)
    await expect(waiting).rejects.toBe(left)
    expect(client.sent).toEqual([])
    expect((await ask()).code).toBe('given')
  })
})

it('an encrypted stream is given as it comes, frame by frame, but for its end', async () => {
  let release: () => void = () => undefined
  const gate = new Promise<void>((resolve) => {
    release = resolve
  })
  client.attack = {
    passOn: ({ nonce, frames }, type) => {
      const body = new ReadableStream<Uint8Array<ArrayBuffer>>({
        async start(controller) {
          // Byte by byte, as a network may.
          for (const byte of frames[0] ?? []) controller.enqueue(Uint8Array.of(byte))
          await gate
          for (const frame of frames.slice(1)) controller.enqueue(new Uint8Array(frame))
          controller.close()
        },
      })
      return new Response(body, {
        headers: { 'content-type': type, [RESPONSE_NONCE_HEADER]: nonce },
      })
    },
  }
  const response = await send(STREAMED)
  const reader = response.body?.getReader()
  const first = Buffer.from((await reader?.read())?.value ?? []).toString()
  expect(first).toMatch(/^data: .*\n\n$/)
  release()
  let rest = ''
  for (;;) {
    const { done, value } = (await reader?.read()) ?? { done: true }
    if (done) break
    rest += Buffer.from(value ?? []).toString()
  }
  expect(rest.endsWith('data: [DONE]\n\n')).toBe(true)
})
