import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { openPlainStage, type PlainStage } from '../support/plain-stage.ts'
import {
  answerWith as answerOfBackend,
  type ScriptedBackend,
  startScriptedBackend,
} from '../support/scripted-backend.ts'
import { answerWith, type ScriptedNode } from '../support/scripted-node.ts'

let stage: PlainStage
let backend: ScriptedBackend
let node: ScriptedNode
beforeAll(async () => {
  stage = await openPlainStage()
  node = await stage.connect({ model: 'public/vision', answer: answerWith('seen') })
  backend = await startScriptedBackend(answerOfBackend('seen'), ['closed/vision', 'open/vision'])
  const agent = { backendUrl: backend.url }
  await stage.startAgent({ ...agent, models: ['closed/vision'] })
  await stage.startAgent({ ...agent, models: ['open/vision'], fetchesMedia: true })
})
afterAll(async () => {
  await stage.stop()
  await backend.stop()
})

async function ask(model: string, url: string, more: object = {}) {
  const reply = await fetch(`${stage.gateway.url}/v1/chat/completions`, {
    method: 'POST',
    headers: {
      'content-type': 'application/json',
      authorization: `Bearer ${stage.gateway.key}`,
    },
    body: JSON.stringify({
      model,
      messages: [{ role: 'user', content: [{ type: 'image_url', image_url: { url } }] }],
      ...more,
    }),
  })
  return { status: reply.status, text: await reply.text() }
}

const ADDRESS = 'http://169.254.169.254/latest/meta-data/'
const PICTURE = 'data:image/png;base64,AAAA'
const asksOf = (model: string) => backend.requests.filter((asked) => asked.model === model)

describe('an address in place of an image', () => {
  it.each([
    ['public/vision', false],
    ['public/vision', true],
    ['closed/vision', false],
    ['closed/vision', true],
  ])('reaches no backend whose owner did not allow it: %s (stream: %s)', async (model, stream) => {
    const { status, text } = await ask(model, ADDRESS, { stream })
    expect(status).toBe(400)
    const { error } = JSON.parse(text)
    expect(error.code).toBe('unsupported_request_parameter')
    expect(error.message).toContain('messages.0.content.0.image_url.url: expected a data URL')
    expect(node.calls).toEqual([])
    expect(asksOf('closed/vision').filter((asked) => 'messages' in asked)).toEqual([])
  })

  it.each(['public/vision', 'closed/vision'])(
    'the model %s takes an image in place of its address',
    async (model) => expect((await ask(model, PICTURE)).status).toBe(200),
  )

  it('a backend whose owner allowed it gets the addresses of the web alone', async () => {
    expect((await ask('open/vision', 'https://example.org/a.png')).status).toBe(200)
    expect(JSON.stringify(asksOf('open/vision').at(-1))).toContain('https://example.org/a.png')
    const count = asksOf('open/vision').length
    expect((await ask('open/vision', 'file:///etc/passwd')).status).toBe(400)
    expect(asksOf('open/vision')).toHaveLength(count)
  })
})
