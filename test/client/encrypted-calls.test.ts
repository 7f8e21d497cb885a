import { randomBytes } from 'node:crypto'
import { Wallet } from 'ethers'
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest'
import { RESPONSE_NONCE_HEADER } from '#attestation/ehbp.ts'
import { AffidavitError, type AffidavitErrorCode } from '#client/errors.ts'
import { createMemoryEnclave, keyConfig, passOn } from './memory-enclave.ts'
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

  it('each encrypted call has a key of its own, and its credential is sealed anew', async () => {
    for (let call = 0; call < 3; call += 1) await ask(REQUEST, { headers: own })
    const all = (name: string) => new Set(client.sent.map(({ headers }) => headers.get(name)))
    expect(all('ehbp-encapsulated-key').size).toBe(3)
    expect(all('fine-tune-authorization').size).toBe(3)
    expect(new Set(client.bodies).size).toBe(3)
    expect(keyLists()).toBe(1)
  })

  it('the sealed credential of one call cannot be used for another call', async () => {
    await ask(REQUEST, { headers: own })
    await ask(REQUEST, { headers: own })
    const [first, second] = client.sent
    const headers = new Headers(second?.headers)
    headers.set(
      'fine-tune-authorization',
      first?.headers.get('fine-tune-authorization') ?? 'expected one',
    )
    expect(() => client.enclave.open(headers, second?.body ?? Buffer.alloc(0))).toThrow(
      expect.objectContaining({ fault: expect.objectContaining({ code: 'bad_ciphertext' }) }),
    )
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
  const hour = (now: number) => ({ notBefore: now - 60, notAfter: now + HOUR_S })

  it.each<[string, NonNullable<Attack['keys']>]>([
    [
      "that is the gateway's own, under the enclave's statement",
      (enclave, now) => ({ ...enclave.state(hour(now)), public_key: randomKey() }),
    ],
    [
      'of another notary',
      (enclave, now) => enclave.state({ ...hour(now), signer: other as never }),
    ],
    ['stated for another chain', (enclave, now) => enclave.state({ ...hour(now), chainId: 1 })],
    [
      'stated for another contract',
      (enclave, now) => enclave.state({ ...hour(now), contract: `0x${'c1'.repeat(20)}` }),
    ],
    [
      'that is not usable yet',
      (enclave, now) => enclave.state({ notBefore: now + 60, notAfter: now + HOUR_S }),
    ],
    ['that has ended', (enclave, now) => enclave.state({ notBefore: now - HOUR_S, notAfter: now })],
    [
      'that ends before a call could be read',
      (enclave, now) => enclave.state({ notBefore: now - HOUR_S, notAfter: now + 30 }),
    ],
    [
      'that is usable for too long',
      (enclave, now) => enclave.state({ notBefore: now - 60, notAfter: now + 3 * HOUR_S }),
    ],
    [
      'that ends before it begins',
      (enclave, now) => enclave.state({ notBefore: now - 60, notAfter: now - 120 }),
    ],
    [
      'whose time was changed',
      (enclave, now) => ({ ...enclave.state(hour(now)), not_after: now + 2 * HOUR_S - 60 }),
    ],
    ['with a member more', (enclave, now) => ({ ...enclave.state(hour(now)), notary: ADDRESS })],
    ['without a signature', (enclave, now) => ({ ...enclave.state(hour(now)), signature: '0x' })],
    ['that is malformed', () => null],
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

  it('the key of a notary whose enclave is not expected is not used', async () => {
    client.attack = { fields: { pcrs: new Map([[0, Buffer.alloc(48, 1)]]) } }
    expect((await ask()).code).toBe('no_notary')
    expect(client.sent).toEqual([])
  })

  it('a key from /.well-known is never asked for', async () => {
    await ask()
    expect(new Set(client.asked)).toEqual(
      new Set(['/v1/notaries', '/v1/attestation', new URL(client.url).pathname]),
    )
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
  const flip = (frame: Uint8Array, at: number) => frame.with(at, (frame.at(at) ?? 0) ^ 1)
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

  it.each<[string, Attack, Codes]>([
    [
      'without the nonce header',
      { passOn: withHeader((h) => h.delete(RESPONSE_NONCE_HEADER)) },
      notOpened,
    ],
    [
      'with another nonce',
      { passOn: withHeader((h) => h.set(RESPONSE_NONCE_HEADER, 'ab'.repeat(32))) },
      notOpened,
    ],
    [
      'with a nonce that is none',
      { passOn: withHeader((h) => h.set(RESPONSE_NONCE_HEADER, 'x')) },
      notOpened,
    ],
    [
      'with two nonces',
      { passOn: withHeader((h) => h.append(RESPONSE_NONCE_HEADER, 'ab'.repeat(32))) },
      notOpened,
    ],
    [
      'in the clear',
      { intercept: () => new Response(clear, { headers: { 'content-type': 'application/json' } }) },
      notOpened,
    ],
    [
      'in the clear, under a nonce header',
      {
        intercept: () =>
          new Response(clear, {
            headers: {
              'content-type': 'application/json',
              [RESPONSE_NONCE_HEADER]: 'ab'.repeat(32),
            },
          }),
      },
      ['not_encrypted', 'invalid_answer'],
    ],
    ['without its first frame', { sealed: frames((all) => all.slice(1)) }, notOpened],
    ['without a frame', { sealed: frames((all) => all.toSpliced(1, 1)) }, notOpened],
    [
      'without its last frame',
      { sealed: frames((all) => all.slice(0, -1)) },
      ['invalid_answer', 'cut_stream'],
    ],
    ['without any frame', { sealed: frames(() => []) }, ['invalid_answer', 'cut_stream']],
    [
      'with a frame twice',
      { sealed: frames((all) => all.toSpliced(1, 0, all[1] ?? new Uint8Array())) },
      notOpened,
    ],
    [
      'with frames in another order',
      { sealed: frames(([a, b, ...rest]) => [b, a, ...rest].flatMap((frame) => frame ?? [])) },
      notOpened,
    ],
    ['with a frame of another call', { sealed: splice }, notOpened],
    [
      'with a frame that was altered',
      { sealed: frames((all) => all.map((frame) => flip(frame, 9))) },
      notOpened,
    ],
    [
      'with an altered tag',
      { sealed: frames((all) => all.map((frame) => flip(frame, frame.length - 1))) },
      notOpened,
    ],
    [
      'with a frame shorter than a tag',
      { sealed: frames(() => [Uint8Array.of(0, 0, 0, 2, 1, 2)]) },
      notOpened,
    ],
    [
      'that ends within a frame',
      {
        sealed: frames((all) => [
          ...all.slice(0, -1),
          all.at(-1)?.subarray(0, 20) ?? new Uint8Array(),
        ]),
      },
      notOpened,
    ],
    [
      'with a frame that claims more than an answer may have',
      { sealed: frames(() => [Uint8Array.of(255, 255, 255, 255, 1)]) },
      notOpened,
    ],
    [
      'whose receipt says that it was not encrypted',
      { receipt: { encrypted: false } },
      ['wrong_receipt', 'wrong_receipt'],
    ],
    [
      'from elsewhere',
      {
        intercept: () =>
          new Response(null, { status: 307, headers: { location: 'https://elsewhere.example' } }),
      },
      ['redirected', 'redirected'],
    ],
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

  it('a gateway with a key of its own cannot read an encrypted call', async () => {
    const mine = createMemoryEnclave()
    client.attack = {
      intercept: (_, { headers, body }) => {
        expect(() => mine.open(headers, body)).toThrow()
        return null
      },
    }
    expect((await ask()).code).toBe('given')
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

  it.each([400, 401, 409, 422, 429, 503])(
    'an error of the gateway in the clear, with status %d, is passed on without an answer',
    async (status) => {
      const body = JSON.stringify({ error: { code: 'x' }, choices: [{ message: SAID }] })
      client.attack = { intercept: () => new Response(body, { status }) }
      const response = await send(REQUEST)
      expect([response.status, await response.json()]).toEqual([status, { error: { code: 'x' } }])
      expect(client.sent).toHaveLength(1)
    },
  )

  it('an error that cannot be opened tells no more than its status', async () => {
    client.attack = {
      fault: (opened) => {
        const { nonce, frames } = opened.seal([JSON.stringify(error)])
        const cut = { nonce, frames: frames.map((frame) => frame.with(8, 0).with(9, 0)) }
        return passOn(cut, { status: 400, type: 'application/json' })
      },
    }
    const response = await send(REQUEST)
    expect(response.status).toBe(400)
    expect(await response.json()).toMatchObject({ error: { code: 'gateway_error' } })
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

  it('a caller that leaves an endless stream ends it', async () => {
    let isCancelled = false
    client.attack = {
      fault: (opened) => {
        const { nonce, frames } = opened.seal(Array(1_000).fill(': ping\n\n'))
        const body = new ReadableStream<Uint8Array>(
          {
            pull: (controller) => controller.enqueue(frames[given++] ?? new Uint8Array(4)),
            cancel: () => {
              isCancelled = true
            },
          },
          { highWaterMark: 0 },
        )
        const type = 'text/event-stream'
        return new Response(body, {
          headers: { 'content-type': type, [RESPONSE_NONCE_HEADER]: nonce, 'x-endless': '1' },
        })
      },
    }
    let given = 0
    const response = await send(STREAMED)
    const reader = response.body?.getReader()
    expect(Buffer.from((await reader?.read())?.value ?? [])).toEqual(Buffer.from(': ping\n\n'))
    // Nothing is read ahead of its reader.
    expect(given).toBeLessThan(4)
    await reader?.cancel('left')
    expect(isCancelled).toBe(true)
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
