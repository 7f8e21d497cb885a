import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import type { JsonObject } from '#attestation/json/value.ts'
import { chunked, EVENT_STREAM_HEAD, send, wholeAnswer } from '../../support/hostile-answers.ts'
import {
  type HostileProvider,
  type Step,
  startHostileProvider,
} from '../../support/hostile-provider.ts'
import { EVENT_NAMES, QUESTIONS, STREAMS, textOf } from '../support/dialect-stage.ts'
import { callEncrypted, sealParts } from '../support/encrypted-calls.ts'
import { startTestEnclave, type TestEnclave } from '../support/test-enclave.ts'

let provider: HostileProvider
let enclave: TestEnclave
let publicKey: string
let script: () => Iterable<Step>

beforeAll(async () => {
  provider = await startHostileProvider({ answer: () => script() })
  const endpoints = { responses: { path: '/responses' }, messages: { path: '/messages' } }
  const entry = { name: 'hostile', origin: provider.origin, path: '/chat', models: ['hostile'] }
  enclave = await startTestEnclave({
    providers: [{ ...entry, endpoints }],
    limits: { firstByteTimeoutMs: 1_000, idleTimeoutMs: 1_000 },
    waits: { keepAliveMs: 40, proofMs: 300 },
  })
  publicKey = (await enclave.identity()).encryption_keys?.[0]?.public_key ?? ''
})

afterAll(async () => {
  await enclave.stop()
  await provider.close()
})

type Name = (typeof EVENT_NAMES)[number]

async function ask(dialect: Name, body: object, more = {}) {
  const gateway = { socketPath: enclave.socketPath, dialect, ...more }
  return callEncrypted(gateway, await sealParts(publicKey, [JSON.stringify(body)]))
}

/** The data of the last event. */
const lastOf = (text: string) => JSON.parse(text.trimEnd().split('\ndata: ').at(-1) ?? '')
const refusal = { error: { message: 'slow down', code: 'rate' } }

describe('an error of an encrypted call that has not begun to stream', () => {
  const hidden = {
    responses: { previous_response_id: 'resp_0' },
    messages: { thread: { id: 'thread_0' } },
  }

  it.each([
    ['a hidden prompt', 400, 'validation_failed', (name: Name) => hidden[name]],
    ['a malformed request', 400, 'validation_failed', () => ({ model: 1 })],
    ['a refusal of the provider', 429, 'provider_refused', () => ({})],
  ] as const)(
    'an encrypted error has the form and the status of its dialect for %s',
    async (_, status, code, odd) => {
      script = () => [send(wholeAnswer({ status: 429, body: JSON.stringify(refusal) }))]
      for (const name of EVENT_NAMES) {
        const { head, text } = await ask(name, { ...QUESTIONS[name], ...odd(name) })
        expect(head?.status).toBe(status)
        const body = JSON.parse(text)
        const error = { code, message: expect.any(String), type: expect.any(String) }
        // OpenAI's form has the provider's own code.
        const shown = code === 'provider_refused' ? refusal.error.code : code
        if (name === 'messages') expect(body).toMatchObject({ type: 'error', error })
        else expect(body).toEqual({ error: { ...error, code: shown, param: body.error.param } })
      }
    },
  )
})

describe('an error within an encrypted stream', () => {
  const playing = (events: readonly JsonObject[]) => [
    send(EVENT_STREAM_HEAD),
    ...events.map((each) => send(chunked(textOf(each)))),
    send(chunked('')),
  ]

  it('an error of Messages is an error event in the form of Anthropic', async () => {
    const begun = STREAMS.messages.slice(0, 4)
    script = () => playing(begun)
    const { head, text } = await ask('messages', QUESTIONS.messages)
    expect(head?.status).toBe(200)
    expect(text).toContain('event: error\n')
    expect(lastOf(text)).toMatchObject({
      type: 'error',
      error: { type: 'api_error', code: 'provider_error' },
    })
  })

  it('an error of Responses after pings alone is a failed response too', async () => {
    script = () => [send(EVENT_STREAM_HEAD), { kind: 'stall' }]
    const { text } = await ask('responses', QUESTIONS.responses)
    expect(text).toContain(': ping\n')
    // OpenAI's SDK hides an error that comes before this event.
    expect(text).toContain('event: response.created\n')
    expect(lastOf(text)).toMatchObject({
      sequence_number: 1,
      response: { object: 'response', status: 'failed', error: { code: 'provider_timeout' } },
    })
  })

  it('an answer of Responses whose proof is late ends as a failed response', async () => {
    script = () => playing(STREAMS.responses)
    const { text } = await ask('responses', QUESTIONS.responses, { proof: () => null })
    const last = lastOf(text)
    expect(last).toMatchObject({ type: 'response.failed', response: { status: 'failed' } })
    expect(last.response.error.code).toBe('commit_delayed')
    const numbers = [...text.matchAll(/"sequence_number":(\d+)/g)].map(([, each]) => Number(each))
    expect(numbers).toEqual(numbers.map((_, at) => at))
  })
})
