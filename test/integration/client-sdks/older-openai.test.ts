import OpenAI7 from 'openai'
import OpenAI4 from 'openai4'
import OpenAI5 from 'openai5'
import OpenAI6 from 'openai6'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { GATEWAY_HOOK_TIMEOUT_MS } from '../../support/gateway.ts'
import { openPlainStage, type PlainStage } from '../../support/plain-stage.ts'
import { answerError } from '../../support/scripted-node.ts'

let stage: PlainStage
beforeAll(async () => {
  stage = await openPlainStage({ limits: { waitMs: 200 } })
  await stage.connect({ model: 'talks' })
  await stage.connect({ model: 'breaks', answer: answerError(500) })
}, GATEWAY_HOOK_TIMEOUT_MS)
afterAll(() => stage.stop(), GATEWAY_HOOK_TIMEOUT_MS)

const messages = [{ role: 'user' as const, content: 'hello' }]
/** The text of an error, as people see it. */
const shown = (call: PromiseLike<unknown>) => call.then(() => 'answered', String)

describe.each([
  ['4', OpenAI4],
  ['5', OpenAI5],
  ['6', OpenAI6],
  ['7', OpenAI7],
])('openai %s', (_, OpenAI) => {
  const open = (path: string, apiKey = stage.gateway.key) =>
    new (OpenAI as typeof OpenAI7)({ baseURL: stage.gateway.url + path, apiKey, maxRetries: 0 })
  const ask = (path: string, more: object) =>
    open(path).chat.completions.create({ model: 'talks', messages, ...more })

  it.each(['/v1', '/v1/verified'])(
    'an older openai package at %s shows what is wrong with a request',
    async (path) => {
      const text = await shown(ask(path, { temperature: 7, n: 0 }))
      expect(text).toContain('422 body.n: Input should be greater than or equal to 1 (and 1 more')
      expect(
        await shown(open(path).chat.completions.create({ model: 'talks', messages: [] })),
      ).toContain('422 body.messages:')
    },
  )

  it('an older openai package shows the message of every other refusal, with type and param', async () => {
    expect(await shown(ask('/v1', { model: 'nobodys' }))).toContain('404 No node serves this model')
    const error = await ask('/v1', { model: 'nobodys' }).then(
      () => null,
      (fault: unknown) => fault,
    )
    expect(error).toMatchObject({
      code: 'unsupported_model',
      param: 'model',
      type: 'invalid_request_error',
    })
    expect(
      await shown(open('/v1', 'wrong').chat.completions.create({ model: 'talks', messages })),
    ).toContain('401 ')
    expect(
      await shown(open('/v1/verified').embeddings.create({ model: 'e', input: 'x' })),
    ).toContain('404 There is nothing at this path. Similar paths: /v1/verified/chat/completions')
  })

  it('an older openai package shows the message of an error event', async () => {
    const stream = await open('/v1').chat.completions.create({
      model: 'breaks',
      messages,
      stream: true,
    })
    const read = async () => {
      for await (const _ of stream);
    }
    expect(await shown(read())).toContain('reported that its backend failed')
  })

  it('an older openai package finds a choice in each chunk of a stream', async () => {
    let text = ''
    const stream = await open('/v1').chat.completions.create({
      model: 'talks',
      messages,
      stream: true,
    })
    for await (const chunk of stream)
      text += chunk.choices[0]?.delta.content ?? expect.fail('no choice')
    expect(text).toContain('Hello from')
  })
})
