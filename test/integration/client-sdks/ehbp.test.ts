import { createTransport, KeyConfigMismatchError, ProtocolError, Transport } from 'ehbp'
import OpenAI from 'openai'
import { zodFunction } from 'openai/helpers/zod'
import { beforeAll, describe, expect, it } from 'vitest'
import { z } from 'zod'
import { findKept } from '../../support/kept-completions.ts'
import { type SharedAffidavit, useAffidavit } from '../../support/use-affidavit.ts'

let service: SharedAffidavit
let transport: Transport
beforeAll(async () => {
  service = await useAffidavit()
  transport = await createTransport(service.url)
})

const open = (options: ConstructorParameters<typeof OpenAI>[0] = {}) =>
  new OpenAI({
    baseURL: `${service.url}/v1/verified`,
    apiKey: service.apiKey,
    maxRetries: 0,
    fetch: (input, init) => transport.request(input as string, init),
    ...options,
  })
/** A request with a prompt that is unique among the tests of the shared service. */
const ask = (text: string, model = 'demo/echo') => ({
  model,
  messages: [{ role: 'user' as const, content: `${text} (ehbp)` }],
})
const said = (text: string) => `[demonstration] You said: ${text} (ehbp)`
const weather = {
  name: 'get_weather',
  description: 'Weather of a city',
  parameters: z.object({ city: z.string() }),
  function: ({ city }: { readonly city: string }) => `rain in ${city}`,
}

/** The cause of a failure: openai wraps the rejection of its fetch. */
const causeOf = (running: Promise<unknown>) =>
  running.then(
    () => 'answered',
    (fault) => fault.cause ?? fault,
  )

describe('the ehbp package, as it is, as the transport of the openai package', () => {
  it('the ehbp package gets an answer with its proof, which is kept without its content', async () => {
    const { data, response } = await open().chat.completions.create(ask('whole')).withResponse()
    expect(data.choices[0]?.message.content).toBe(said('whole'))
    expect(data).toMatchObject({ receipt: { encrypted: true }, hash: expect.any(String) })
    expect(response.headers.get('ehbp-response-nonce')).toMatch(/^[0-9a-f]{64}$/)
    expect(await findKept(service, 'whole (ehbp)')).toBeNull()
  })

  it('the ehbp package gets a stream as it comes, with the proof in its last chunk', async () => {
    const stream = await open().chat.completions.create({ ...ask('streamed'), stream: true })
    let text = ''
    let last: unknown
    let count = 0
    for await (const chunk of stream) {
      text += chunk.choices[0]?.delta.content ?? ''
      last = chunk
      count += 1
    }
    expect(text).toBe(said('streamed'))
    expect(count).toBeGreaterThan(3)
    expect(last).toMatchObject({ receipt: { encrypted: true }, tx_hash: expect.any(String) })
  })

  it('the openai package over ehbp runs tools until the model answers, streamed or not', async () => {
    const request = { ...ask('get_weather({"city":"Bergen"})'), tools: [zodFunction(weather)] }
    const messages = [{ role: 'user' as const, content: 'get_weather({"city":"Bergen"})' }]
    const runner = open().chat.completions.runTools({ ...request, messages })
    expect(await runner.finalContent()).toBe('[demonstration] The tool answered: rain in Bergen')
    const streaming = open().chat.completions.runTools({ ...request, messages, stream: true })
    expect(await streaming.finalContent()).toBe('[demonstration] The tool answered: rain in Bergen')
  })

  it.each<[string, object, number]>([
    ['messages that are none', { messages: 'none' }, 422],
    ['a model that nobody has', { model: 'nobody/has-it' }, 404],
  ])('the ehbp package gets the error of the enclave, encrypted: %s', async (_, more, status) => {
    const request = { ...ask('refused'), ...more } as ReturnType<typeof ask>
    await expect(open().chat.completions.create(request)).rejects.toMatchObject({
      status,
      error: { code: expect.any(String) },
    })
  })

  it('the ehbp package refuses an error in the clear about a key that is not valid', async () => {
    const calling = open({ apiKey: 'not-a-key' }).chat.completions.create(ask('of nobody'))
    expect(await causeOf(calling)).toBeInstanceOf(ProtocolError)
  })

  it('the ehbp package learns that its key is gone, and goes on with a new one', async () => {
    const { Identity } = await import('ehbp')
    const gone = new Transport(await Identity.generate(), new URL(service.url).host)
    const client = open({ fetch: (input, init) => gone.request(input as string, init) })
    const calling = client.chat.completions.create(ask('under a key that is gone'))
    expect(await causeOf(calling)).toBeInstanceOf(KeyConfigMismatchError)
    transport = await createTransport(service.url)
    const answer = await open().chat.completions.create(ask('under a new key'))
    expect(answer.choices[0]?.message.content).toBe(said('under a new key'))
  })

  it('the ehbp package takes any key of /.well-known, and does not detect a key of no enclave', async () => {
    const { Identity } = await import('ehbp')
    const operators = await Identity.generate()
    const config = await operators.marshalConfig()
    const taken = await Identity.unmarshalPublicConfig(config)
    expect(await taken.getPublicKeyHex()).toBe(await operators.getPublicKeyHex())
  })
})
