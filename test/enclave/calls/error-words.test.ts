import { gzipSync } from 'node:zlib'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import type { DialectName } from '#attestation/dialects/dialect-names.ts'
import { REFUSAL_BYTES_MAX } from '#enclave/protocol/refusal.ts'
import { chunked, EVENT_STREAM_HEAD, send, wholeAnswer } from '../../support/hostile-answers.ts'
import {
  type HostileProvider,
  type Step,
  startHostileProvider,
} from '../../support/hostile-provider.ts'
import { startTestEnclave, type TestEnclave } from '../support/test-enclave.ts'

const DIALECTS: readonly DialectName[] = ['chat', 'responses', 'messages']
const MEMORY = '{"error":{"message":"CUDA out of memory"}}'

let provider: HostileProvider
let enclave: TestEnclave
let steps: readonly Step[] = []

beforeAll(async () => {
  provider = await startHostileProvider({ answer: () => steps })
  const endpoints = { responses: { path: '/responses' }, messages: { path: '/messages' } }
  const entry = { name: 'hostile', origin: provider.origin, path: '/chat', models: ['hostile'] }
  enclave = await startTestEnclave({
    providers: [{ ...entry, endpoints }],
    limits: { answerBytesMax: 2 * REFUSAL_BYTES_MAX },
  })
})

afterAll(async () => {
  await enclave.stop()
  await provider.close()
})

/** The message of the failed call. */
async function ask(name: DialectName, isStream: boolean, answer: readonly Step[]) {
  steps = answer
  const input =
    name === 'responses' ? { input: 'Hi' } : { messages: [{ role: 'user', content: 'Hi' }] }
  const tokens = name === 'messages' ? { max_tokens: 9 } : {}
  const question = { model: 'hostile', ...input, ...tokens, ...(isStream ? { stream: true } : {}) }
  const { text } = await enclave.complete(question, {}, name)
  expect(await enclave.takeAll()).toEqual([])
  return JSON.parse(text).message as string
}

const whole = (body: string | Uint8Array, headers: Record<string, string> = {}, status = 200) => [
  send(wholeAnswer({ body, headers, status })),
]
const typed = (type: string, body: string) => whole(body, { 'content-type': type })
const streamed = (...events: readonly string[]) => [
  send(EVENT_STREAM_HEAD),
  ...events.map((event) => send(chunked(`${event}\n\n`))),
  send(chunked('')),
]

for (const name of DIALECTS)
  describe(`the words of an error of ${name}`, () => {
    it.each([
      ['text/plain; charset=utf-8', MEMORY, 'CUDA out of memory'],
      ['text/html', '<html>', 'it answered with an HTML page'],
    ])(
      'a stream that is %s instead fails with its type and words: %s',
      async (type, body, words) => {
        expect(await ask(name, true, typed(type, body))).toBe(
          `The provider answered with ${type} where a stream was asked for: ${words}`,
        )
      },
    )

    it('an empty stream of the right type fails as incomplete', async () => {
      expect(await ask(name, true, typed('text/event-stream', ': hello\n\n'))).toBe(
        'The provider ended its answer before it was complete.',
      )
    })

    it.each([
      'data: {"object":"error","message":"w","type":"InternalServerError","code":500}',
      'event: error\ndata: w',
      'event: error\ndata: {"type":"error","error":{"type":"x","message":"w"}}',
    ])('an event of an error fails with its words: %s', async (event) => {
      expect(await ask(name, true, streamed(event))).toBe('The provider broke off with an error: w')
    })

    it.each(['{"object":"error","message":"w","type":"InternalServerError","code":500}'])(
      'a whole answer of an error fails with its words: %s',
      async (body) => {
        const said = 'The provider answered with an error: w'
        expect(await ask(name, false, whole(body))).toBe(said)
      },
    )

    it.each([
      ['text/html', '<html>', ': it answered with an HTML page'],
      ['text/event-stream', 'data: {"secret":1}\n\n', '.'],
    ])('a whole answer that is %s fails with its type and words', async (type, body, words) => {
      expect(await ask(name, false, typed(type, body))).toBe(
        `The provider answered with ${type} where JSON was asked for${words}`,
      )
    })

    it('a whole answer of JSON under another type fails with what is missing', async () => {
      expect(await ask(name, false, typed('text/plain', MEMORY))).toContain('CUDA out of memory')
      expect(await ask(name, false, typed('text/plain', '{"id":1}'))).toMatch(/expected .*\.$/)
    })

    it('a refusal that repeats a long request keeps its words', async () => {
      const input = 'x'.repeat(REFUSAL_BYTES_MAX - 1_000)
      const detail = [{ loc: ['body', 'n'], msg: 'too large', input }]
      expect(await ask(name, false, whole(JSON.stringify({ detail }), {}, 422))).toBe(
        'The provider refused the request: body.n: too large',
      )
    })

    it('a compressed refusal fails with the name of its coding', async () => {
      const answer = whole(gzipSync(MEMORY), { 'content-encoding': 'gzip' }, 429)
      expect(await ask(name, true, answer)).toBe(
        'The provider refused the request: its answer is compressed (gzip)',
      )
    })
  })

it('an error in a choice fails with its words, whole and as a stream', async () => {
  const error = { message: 'w', code: 502 }
  const choice = { index: 0, error, finish_reason: 'error' }
  const chunk = JSON.stringify({ choices: [{ ...choice, delta: { content: '' } }] })
  const answer = JSON.stringify({ choices: [{ ...choice, message: { content: '' } }] })
  expect(await ask('chat', true, streamed(`data: ${chunk}`))).toContain('with an error: w')
  expect(await ask('chat', false, whole(answer))).toContain('with an error: w')
})
