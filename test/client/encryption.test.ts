import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { createFrameReader, REQUEST_INFO, RESPONSE_NONCE_HEADER } from '#attestation/ehbp.ts'
import { isKeyConfigProblem, openAnswer } from '#client/encryption.ts'
import { setUpRecipient } from '#enclave/encryption/hpke.ts'
import { type EhbpExchange, EXCHANGES } from './ehbp-vectors.ts'
import { keyConfig } from './memory-enclave.ts'

const read = (name: string): EhbpExchange =>
  JSON.parse(readFileSync(join(EXCHANGES, `${name}.json`), 'utf8'))
const bytes = (hex: string) => new Uint8Array(Buffer.from(hex, 'hex'))
const framesOf = (hex: string) =>
  [...createFrameReader(1_000_000).push(bytes(hex))].map((frame) => new Uint8Array(frame))

/** A body in parts of so many bytes. */
function inParts(body: Uint8Array, length: number): ReadableStream<Uint8Array<ArrayBuffer>> {
  return new ReadableStream({
    start(controller) {
      for (let at = 0; at < body.length; at += length)
        controller.enqueue(new Uint8Array(body.subarray(at, at + length)))
      controller.close()
    },
  })
}

describe.each(['by-ehbp', 'by-client'])('the recorded exchange %s', (name) => {
  const exchange = read(name)
  const { request, response } = exchange
  const enc = bytes(request.encapsulated_key)
  const answer = Buffer.concat(response.frames.map(bytes))
  const answered = (length: number) =>
    new Response(inParts(answer, length), {
      headers: { [RESPONSE_NONCE_HEADER]: response.nonce },
    })

  it('the enclave opens the request of a recorded exchange', () => {
    const keys = { secretKey: bytes(exchange.secret_key), publicKey: bytes(exchange.public_key) }
    const context = setUpRecipient(keys, { enc, info: REQUEST_INFO })
    const content = Buffer.concat(framesOf(request.body).map((frame) => context.open(frame)))
    expect(content.toString()).toBe(request.content)
    expect(context.export('ehbp response', 32).toString('hex')).toBe(exchange.exported_secret)
  })

  it.each([1, 4_096])(
    'the client opens the answer of a recorded exchange in parts of %d bytes',
    async (length) => {
      const secret = bytes(exchange.exported_secret)
      const opened = await openAnswer(answered(length), { enc, secret, bytesMax: 100_000 })
      expect(await opened.text()).toBe(response.contents.join(''))
    },
  )

  it('a recorded answer does not open under another secret, another key or a lower size limit', async () => {
    const right = { enc, secret: bytes(exchange.exported_secret), bytesMax: 100_000 }
    const refusal = { code: 'not_encrypted' }
    for (const wrong of [
      { ...right, secret: new Uint8Array(32) },
      { ...right, enc: new Uint8Array(32) },
      { ...right, bytesMax: 10 },
    ])
      await expect((await openAnswer(answered(100), wrong)).text()).rejects.toMatchObject(refusal)
  })
})

describe('key-config', () => {
  it.each<[string, Response, boolean]>([
    ['is a problem of this type', keyConfig(), true],
    ['is no error of another type', new Response('{"type":"about:blank"}', problem()), false],
    ['is no text', new Response('key-config', problem()), false],
    ['is nothing longer than a problem', new Response(' '.repeat(100_000), problem()), false],
    ['is no other status', new Response(null, { status: 400 }), false],
  ])('a key-config reply %s', async (_, response, isProblem) => {
    const body = new Uint8Array(await response.arrayBuffer())
    expect(isKeyConfigProblem(response, body)).toBe(isProblem)
  })
})

function problem() {
  return { status: 422, headers: { 'content-type': 'application/problem+json' } }
}
