import OpenAI, { APIError } from 'openai'
import sharp from 'sharp'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { drawing, framesFor } from '../support/drawing-node.ts'
import { answerAsLibrary, drawAsPipeline } from '../support/original-node.ts'
import { openPlainStage, type PlainStage } from '../support/plain-stage.ts'
import {
  answerWith as answerOfBackend,
  type ScriptedBackend,
  startScriptedBackend,
  textChunk,
  writeEvents,
} from '../support/scripted-backend.ts'
import { answerError, answerWith } from '../support/scripted-node.ts'

// What official SDKs see of plain calls is tested in client-sdks/.

let stage: PlainStage
let client: OpenAI
/** Streams a word every 20 ms, forever. */
let endless: ScriptedBackend
/** Knows pictures. */
let seeing: ScriptedBackend

beforeAll(async () => {
  endless = await startScriptedBackend(
    (response) => {
      const timer = setInterval(() => writeEvents(response, [textChunk('word ')]), 20)
      response.once('close', () => clearInterval(timer))
    },
    ['endless'],
  )
  seeing = await startScriptedBackend(answerOfBackend('seen'), ['closed/vision', 'open/vision'])
  stage = await openPlainStage({ limits: { waitMs: 300, asideMs: 300, tickMs: 20 } })
  const { url, key } = stage.gateway
  client = new OpenAI({ baseURL: `${url}/v1`, apiKey: key, maxRetries: 0 })
  await stage.startAgent({ backendUrl: endless.url, models: ['endless'] })
  await stage.startAgent({ backendUrl: seeing.url, models: ['closed/vision'] })
  await stage.startAgent({ backendUrl: seeing.url, models: ['open/vision'], fetchesMedia: true })
})
afterAll(async () => {
  await stage.stop()
  await endless.stop()
  await seeing.stop()
})

const ask = (model: string, content = 'hello') => ({
  model,
  messages: [{ role: 'user' as const, content }],
})

async function faultOf(call: PromiseLike<unknown>): Promise<APIError> {
  const error = await call.then(
    () => null,
    (fault: unknown) => fault,
  )
  if (!(error instanceof APIError)) throw new Error('expected an error of the API')
  return error
}

describe('a caller by the official SDK', () => {
  it('an abort of the official SDK reaches the backend, and the slot is free again', async () => {
    const untilIdle = () =>
      expect
        .poll(() => stage.nodes.status(), { timeout: 30_000 })
        .toMatchObject({ slotsInUse: 0, runs: 0, queued: 0 })
    const leaving = new AbortController()
    const stream = await client.chat.completions.create(
      { ...ask('endless'), stream: true },
      { signal: leaving.signal },
    )
    const read = async () => {
      for await (const _ of stream) leaving.abort()
    }
    await read().catch(() => undefined)
    await expect.poll(() => endless.left()).toBe(1)
    await untilIdle()
    const whole = client.chat.completions.create(ask('endless'), { signal: leaving.signal })
    await expect(whole).rejects.toThrow(OpenAI.APIUserAbortError)
    await untilIdle()
    expect(endless.open()).toBe(0)
  })

  it('the official SDK is given a refusal of the backend in its words, and of a fault its status alone', async () => {
    await stage.connect({ model: 'picky', answer: answerError(400, 'context is too long') })
    const refused = await faultOf(client.chat.completions.create(ask('picky')))
    expect(refused).toBeInstanceOf(OpenAI.BadRequestError)
    expect(refused.message).toContain('context is too long')
    await stage.connect({ model: 'failing', answer: answerError(500, 'unexpected keyword') })
    const failed = await faultOf(client.chat.completions.create(ask('failing')))
    expect([failed.status, failed.code]).toEqual([502, 'node_error'])
    expect(failed.message).toContain('reported that its backend failed, with status 500')
    expect(failed.message).not.toContain('keyword')
  })

  it('the official SDK gets an error when the nodes of a model are gone, and the list leaves it out', async () => {
    const node = await stage.connect({ model: 'fleeting' })
    expect((await client.chat.completions.create(ask('fleeting'))).choices).toHaveLength(1)
    await node.close()
    const fault = await faultOf(client.chat.completions.create(ask('fleeting')))
    expect([fault.status, fault.code]).toEqual([503, 'no_available_inference_nodes'])
    const stream = await client.chat.completions.create({ ...ask('fleeting'), stream: true })
    const read = async () => {
      for await (const _ of stream);
    }
    await expect(read()).rejects.toThrow(OpenAI.APIError)
    const ids = (await client.models.list()).data.map(({ id }) => id)
    expect([ids.includes('endless'), ids.includes('fleeting')]).toEqual([true, false])
  })

  it('a plain stream has a choice in every chunk when it is given again under its Idempotency-Key', async () => {
    await stage.connect({ model: 'streaming', answer: answerAsLibrary('one two three') })
    for (let call = 0; call < 2; call++) {
      // The answer may be stored a moment after its last event; until then the call is in progress.
      const keyed = { headers: { 'Idempotency-Key': 'again' }, maxRetries: 3 }
      const request = { ...ask('streaming'), stream: true } as const
      const stream = await client.chat.completions.create(request, keyed)
      let text = ''
      for await (const { choices } of stream)
        text += choices[0]?.delta.content ?? expect.fail('no choice')
      expect(text).toBe('one two three')
    }
  })
})

describe('the public node client', () => {
  it.each([
    ['new', false],
    ['old', true],
  ])('an answer of the %s node client is whole, streamed or not', async (model, isOld) => {
    await stage.connect({ model, answer: answerWith(`said by the ${model} client`), isOld })
    const answer = await client.chat.completions.create(ask(model))
    const content = answer.choices[0]?.message.content
    expect(content).toBe(`said by the ${model} client`)
    expect(answer.usage).toMatchObject({ prompt_tokens: 9, completion_tokens: 5 })
    const gathered = await client.chat.completions
      .stream({ ...ask(model), stream_options: { include_usage: true } })
      .finalChatCompletion()
    expect(gathered.choices[0]?.message.content).toBe(content)
    expect(gathered.usage).toEqual(answer.usage)
  })

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
      const { choices } = await client.chat.completions.create({ ...ask(model), ...foreign })
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
})

describe('a backend behind our agent', () => {
  it('a backend at its limit gives a 429 with its own wait, also to a caller who asked for a stream', async () => {
    const backend = await startScriptedBackend((response) => {
      response.writeHead(429, { 'retry-after': '7', 'content-type': 'application/json' })
      response.end('{"error":{"message":"slow down"}}')
    })
    await stage.startAgent({ backendUrl: backend.url, models: ['model-a'] })
    for (const stream of [false, true]) {
      const fault = await faultOf(client.chat.completions.create({ ...ask('model-a'), stream }))
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

  const asksOf = (model: string) =>
    seeing.requests.filter((asked) => asked.model === model && 'messages' in asked)
  const look = (model: string, url: string, more: object = {}) =>
    client.chat.completions.create({
      model,
      messages: [{ role: 'user', content: [{ type: 'image_url', image_url: { url } }] }],
      ...more,
    })

  it('a backend behind our agent gets pictures of megabytes, and every member', async () => {
    const url = `data:image/png;base64,${'A'.repeat(6_000_000)}`
    const { choices } = await look('closed/vision', url, { top_k: 4 })
    expect(choices[0]?.message.content).toBe('seen')
    const messages = [{ content: [{ image_url: { url } }] }]
    expect(asksOf('closed/vision')).toMatchObject([{ messages, top_k: 4 }])
  })

  it.each([
    ['public/vision', false],
    ['public/vision', true],
    ['closed/vision', false],
    ['closed/vision', true],
  ])(
    'an address in place of an image reaches no backend whose owner did not allow it: %s (stream: %s)',
    async (model, stream) => {
      const node = await stage.connect({ model: 'public/vision', answer: answerWith('seen') })
      const count = asksOf('closed/vision').length
      const fault = await faultOf(
        look(model, 'http://169.254.169.254/latest/meta-data/', { stream }),
      )
      expect([fault.status, fault.code]).toEqual([400, 'unsupported_request_parameter'])
      expect(fault.message).toContain('messages.0.content.0.image_url.url: expected a data URL')
      expect([node.calls, asksOf('closed/vision').length]).toEqual([[], count])
      await node.close()
    },
  )

  it('a backend whose owner allowed it gets the addresses of the web alone', async () => {
    expect((await look('open/vision', 'https://example.org/a.png')).choices).toHaveLength(1)
    expect(JSON.stringify(asksOf('open/vision'))).toContain('https://example.org/a.png')
    const fault = await faultOf(look('open/vision', 'file:///etc/passwd'))
    expect([fault.status, asksOf('open/vision').length]).toEqual([400, 1])
  })
})
