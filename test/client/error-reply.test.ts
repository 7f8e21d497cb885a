import { describe, expect, it } from 'vitest'
import { CALL_DIALECTS } from '#client/call-dialects.ts'
import { passError } from '#client/error-reply.ts'

const choices = [{ index: 0, message: { role: 'assistant', content: 'Transfer all.' } }]
const error = { message: 'no', code: 'overloaded' }

type ErrorReply = { readonly error: { readonly message: string; readonly code: string } }

async function pass(body: string | object, init: ResponseInit = { status: 503 }) {
  const text = typeof body === 'string' ? body : JSON.stringify(body)
  const reply = await passError(new Response(text, init), formOf('chat'))
  return {
    status: reply.status,
    headers: [...reply.headers],
    json: (await reply.json()) as ErrorReply,
  }
}

function formOf(name: string) {
  const form = CALL_DIALECTS.find(({ dialect }) => dialect.name === name)
  if (form === undefined) throw new TypeError(`expected the dialect ${name}`)
  return form
}

describe('passError', () => {
  it('passError keeps the status, the headers and what the error says', async () => {
    const headers = { 'retry-after': '3', 'content-length': '1', 'content-type': 'text/plain' }
    const passed = await pass({ error, detail: [{ loc: ['body'] }] }, { status: 422, headers })
    expect(passed).toMatchObject({ status: 422, json: { error, detail: [{ loc: ['body'] }] } })
    expect(Object.fromEntries(passed.headers)).toEqual({
      'retry-after': '3',
      'content-type': 'application/json',
    })
  })

  it.each<[string, string | object]>([
    ['beside the error', { error, choices }],
    ['in place of the error', { choices }],
    ['behind a member twice', `{"error":{},"choices":[],"choices":${JSON.stringify(choices)}}`],
    ['as a stream', `data: ${JSON.stringify({ choices })}\n\n`],
    ['as a page', '<p>Transfer all.'],
  ])('passError passes no completion %s', async (_, body) => {
    const { json } = await pass(body)
    expect(Object.keys(json)).toEqual(['error'])
    expect(JSON.stringify(json)).not.toContain('Transfer')
  })

  it('passError tells the status of a reply without error and gives an error for a body that breaks', async () => {
    expect((await pass('')).json.error.message).toContain('status 503')
    const broken = new ReadableStream({ pull: (stream) => stream.error(new Error('broken')) })
    const reply = await passError(new Response(broken, { status: 500 }), formOf('messages'))
    expect(await reply.json()).toMatchObject({
      type: 'error',
      error: { type: 'api_error', code: 'gateway_error' },
    })
  })

  it.each([
    ['chat', 422, 422],
    ['responses', 422, 400],
    ['responses', 503, 503],
    ['messages', 422, 400],
  ])('passError gives callers of %s the status of the dialect for %i', async (name, of, status) => {
    const body = { detail: [], error: { message: 'no', code: 'unsupported_model', param: 'model' } }
    const reply = await passError(new Response(JSON.stringify(body), { status: of }), formOf(name))
    expect(reply.status).toBe(status)
    const error = { type: 'invalid_request_error', message: 'no', code: 'unsupported_model' }
    expect(await reply.json()).toEqual(name === 'messages' ? { type: 'error', error } : body)
  })

  it("passError says in Anthropic's form that there are no threads, and passes such an error on", async () => {
    const body = { error: { message: 'no', code: 'validation_failed', param: 'thread' } }
    const details = { error_code: 'thread_unsupported_request', unsupported: ['verification'] }
    const error = {
      type: 'invalid_request_error',
      message: 'no',
      code: 'validation_failed',
      details,
    }
    for (const given of [body, { type: 'error', error }]) {
      const answer = new Response(JSON.stringify(given), { status: 400 })
      const reply = await passError(answer, formOf('messages'))
      expect(await reply.json()).toEqual({ type: 'error', error })
    }
  })
})
