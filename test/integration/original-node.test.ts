import OpenAI, { APIError } from 'openai'
import sharp from 'sharp'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { drawing, framesFor } from '../support/drawing-node.ts'
import { GATEWAY_HOOK_TIMEOUT_MS } from '../support/gateway.ts'
import { answerAsLibrary, drawAsPipeline } from '../support/original-node.ts'
import { openPlainStage, type PlainStage } from '../support/plain-stage.ts'
import { startScriptedBackend } from '../support/scripted-backend.ts'
import { answerError } from '../support/scripted-node.ts'

let stage: PlainStage
let client: OpenAI
beforeAll(async () => {
  stage = await openPlainStage({ limits: { waitMs: 300 } })
  const { url, key } = stage.gateway
  client = new OpenAI({ baseURL: `${url}/v1`, apiKey: key, maxRetries: 0 })
}, GATEWAY_HOOK_TIMEOUT_MS)
afterAll(() => stage.stop(), GATEWAY_HOOK_TIMEOUT_MS)

const messages = [{ role: 'user' as const, content: 'hello' }]

async function faultOf(call: PromiseLike<unknown>): Promise<APIError> {
  const error = await call.then(
    () => null,
    (fault: unknown) => fault,
  )
  if (!(error instanceof APIError)) throw new Error('expected an error of the API')
  return error
}

describe('the public node client', () => {
  it("the public node client answers requests with members that are unknown or its library's own", async () => {
    const model = 'library'
    const node = await stage.connect({ model, answer: answerAsLibrary('fine') })
    const foreign = {
      top_k: 4,
      reasoning: {},
      chat_id: 'c',
      timeout: 0,
      extra_headers: { host: 'elsewhere' },
    }
    for (let call = 0; call < 6; call++) {
      const { choices } = await client.chat.completions.create({ model, messages, ...foreign })
      expect(choices[0]?.message.content).toBe('fine')
    }
    expect(node.calls).toHaveLength(6)
  })

  it('a node that always draws 1,024 pixels gives callers the size they asked for, or what it drew', async () => {
    const model = 'sdxl'
    const create = { width: 1024, height: 1024, channels: 3, background: '#206090' } as const
    const drawn = await sharp({ create }).png().toBuffer()
    const node = await stage.connect({ model, ...drawing(drawAsPipeline(drawn)) })
    const draw = async (size: { size?: '256x256' | '512x512' | '1024x1024' }) => {
      const asked = { model, prompt: 'a fox', n: 2, response_format: 'b64_json', ...size } as const
      const { data = [] } = await client.images.generate(asked)
      return Promise.all(
        data.map(async ({ b64_json: text }) => {
          const { format, width, height } = await sharp(
            Buffer.from(text ?? '', 'base64'),
          ).metadata()
          return `${format} ${width}x${height}`
        }),
      )
    }
    expect(await draw({ size: '256x256' })).toEqual(['png 256x256', 'png 256x256'])
    expect(await draw({ size: '512x512' })).toEqual(['png 512x512', 'png 512x512'])
    expect(await draw({})).toEqual(['png 1024x1024', 'png 1024x1024'])
    expect(framesFor(node).map(({ size }) => size)).toEqual(['256x256', '512x512', '1024x1024'])
  })

  it('a node client that says it failed is reported as failed, and not as broken off', async () => {
    const model = 'failing'
    await stage.connect({ model, answer: answerError(500, 'unexpected keyword argument') })
    const whole = await faultOf(client.chat.completions.create({ model, messages }))
    expect([whole.status, whole.code]).toEqual([502, 'node_error'])
    expect(whole.message).toContain('reported that its backend failed, with status 500')
    expect(whole.message).not.toContain('keyword')
  })
})

describe('a backend behind our agent', () => {
  it('a backend at its limit gives a 429 with its own wait, also to a caller who asked for a stream', async () => {
    const backend = await startScriptedBackend((response) => {
      response.writeHead(429, { 'retry-after': '7', 'content-type': 'application/json' })
      response.end('{"error":{"message":"slow down"}}')
    })
    const model = 'model-a'
    await stage.startAgent({ backendUrl: backend.url, models: [model] })
    for (const stream of [false, true]) {
      const fault = await faultOf(client.chat.completions.create({ model, messages, stream }))
      expect([fault.status, fault.code, fault.type]).toEqual([
        429,
        'rate_limit_exceeded',
        'rate_limit_error',
      ])
      expect(fault.headers?.get('retry-after')).toBe('7')
      expect(fault.headers?.get('retry-after-ms')).toBe('7000')
    }
    await backend.stop()
  })

  it('a backend behind our agent gets pictures of megabytes, and every member', async () => {
    const model = 'vision'
    const backend = await startScriptedBackend(
      (response) => {
        const chunk = {
          choices: [{ index: 0, delta: { content: 'a cat' }, finish_reason: 'stop' }],
        }
        response.writeHead(200, { 'content-type': 'text/event-stream' })
        response.end(`data: ${JSON.stringify(chunk)}\n\ndata: [DONE]\n\n`)
      },
      [model],
    )
    await stage.startAgent({ backendUrl: backend.url, models: [model] })
    const url = `data:image/png;base64,${'A'.repeat(6_000_000)}`
    const content = [{ type: 'image_url' as const, image_url: { url } }]
    const request = { model, messages: [{ role: 'user' as const, content }], top_k: 4 }
    const { choices } = await client.chat.completions.create(request)
    expect(choices[0]?.message.content).toBe('a cat')
    expect(backend.requests).toMatchObject([{ messages: request.messages, top_k: 4 }])
    await backend.stop()
  })
})

describe('a plain stream', () => {
  it('a plain stream has a choice in every chunk, but for the last when usage was asked for', async () => {
    const model = 'streaming'
    await stage.connect({ model, answer: answerAsLibrary('one two three') })
    const stream = await client.chat.completions.create({ model, messages, stream: true })
    const texts: string[] = []
    for await (const { choices } of stream) {
      const [choice] = choices
      if (choice === undefined) throw new Error('expected a choice in each chunk')
      texts.push(choice.delta.content ?? '')
    }
    expect(texts.join('')).toBe('one two three')
    const options = { stream: true, stream_options: { include_usage: true } } as const
    const chunks = []
    for await (const chunk of await client.chat.completions.create({ model, messages, ...options }))
      chunks.push(chunk)
    expect(chunks.map(({ choices }) => choices.length)).toEqual([
      ...chunks.slice(1).map(() => 1),
      0,
    ])
    expect(chunks.map(({ usage }) => usage?.completion_tokens)).toEqual([
      ...chunks.slice(1).map(() => undefined),
      3,
    ])
  })

  it('a plain stream has a choice in every chunk when it is given again under its Idempotency-Key', async () => {
    const model = 'streaming'
    for (let call = 0; call < 2; call++) {
      // The answer may be stored a moment after its last event; until then the call is in progress.
      const keyed = { headers: { 'Idempotency-Key': 'again' }, maxRetries: 3 }
      const stream = await client.chat.completions.create({ model, messages, stream: true }, keyed)
      let text = ''
      for await (const { choices } of stream)
        text += choices[0]?.delta.content ?? expect.fail('no choice')
      expect(text).toBe('one two three')
    }
  })
})
