import { type AIMessageChunk, HumanMessage } from '@langchain/core/messages'
import { tool } from '@langchain/core/tools'
import { ChatOpenAI } from '@langchain/openai'
import { beforeAll, describe, expect, it } from 'vitest'
import { z } from 'zod'
import { findKept } from '../../support/kept-completions.ts'
import { type SharedAffidavit, useAffidavit } from '../../support/use-affidavit.ts'

let service: SharedAffidavit
beforeAll(async () => {
  service = await useAffidavit()
})

const weather = tool(async ({ city }) => `rain in ${city}`, {
  name: 'get_weather',
  description: 'Weather of a city',
  schema: z.object({ city: z.string() }),
})

describe.each([
  ['/v1', false],
  ['/v1/dashboard', false],
  ['/v1/verified', true],
])('ChatOpenAI, pointed at %s', (path, isVerified) => {
  const open = (
    options: {
      readonly model?: string
      readonly apiKey?: string
      readonly temperature?: number
    } = {},
  ) =>
    new ChatOpenAI({
      model: 'demo/echo',
      apiKey: service.apiKey,
      maxRetries: 0,
      ...options,
      configuration: { baseURL: service.url + path },
    })
  /** A prompt that is unique in this file. */
  const ask = (text: string) => `${text} through ${path} with LangChain`

  it('ChatOpenAI invokes a model, with usage', async () => {
    const prompt = ask('a whole text')
    const answer = await open().invoke(prompt)
    expect(answer.content).toBe(`[demonstration] You said: ${prompt}`)
    expect(answer.response_metadata).toMatchObject({
      finish_reason: 'stop',
      model_name: 'demo/echo',
    })
    expect(answer.usage_metadata?.total_tokens).toBeGreaterThan(10)
    const kept = await findKept(service, prompt)
    expect(kept?.response.usage.total_tokens).toBe(
      isVerified ? answer.usage_metadata?.total_tokens : undefined,
    )
  })

  it('ChatOpenAI streams the same text in many parts, with the same usage', async () => {
    const prompt = ask('a stream')
    const whole = await open().invoke(prompt)
    const parts: AIMessageChunk[] = []
    for await (const part of await open().stream(prompt)) parts.push(part)
    expect(parts.length).toBeGreaterThan(3)
    const gathered = parts.reduce((left, right) => left.concat(right))
    expect(gathered.content).toBe(whole.content)
    expect(gathered.usage_metadata?.total_tokens).toBe(whole.usage_metadata?.total_tokens)
    expect(gathered.response_metadata.finish_reason).toBe('stop')
    expect((await findKept(service, prompt))?.request.stream).toBe(isVerified ? true : undefined)
  })

  it('ChatOpenAI calls a tool, streamed or not, and answers with what it said', async () => {
    const question = new HumanMessage(ask('get_weather({"city":"Oslo"})'))
    const model = open().bindTools([weather])
    const calling = await model.invoke([question])
    const [call] = calling.tool_calls ?? []
    if (call === undefined) throw new Error('expected a call of the tool')
    expect(call).toMatchObject({ name: 'get_weather', args: { city: 'Oslo' } })
    const answer = await model.invoke([question, calling, await weather.invoke(call)])
    expect(answer.content).toBe('[demonstration] The tool answered: rain in Oslo')
    const parts: AIMessageChunk[] = []
    for await (const part of await model.stream([question])) parts.push(part)
    expect(parts.reduce((left, right) => left.concat(right)).tool_calls).toMatchObject([
      { name: 'get_weather', args: { city: 'Oslo' } },
    ])
  })

  it.each(['jsonSchema', 'functionCalling', 'jsonMode'] as const)(
    'ChatOpenAI gives structured output by %s',
    async (method) => {
      const schema =
        method === 'jsonMode'
          ? z.object({ demonstration: z.literal(true), text: z.string() })
          : z.object({ name: z.string().max(4), age: z.int().min(18) })
      const output = await open()
        .withStructuredOutput(schema, { method, name: 'person' })
        .invoke(ask('a person'))
      expect(schema.parse(output)).toEqual(output)
    },
  )

  it('ChatOpenAI throws the errors of the official package, and says what is wrong', async () => {
    const prompt = ask('refused')
    await expect(open({ apiKey: 'wrong' }).invoke(prompt)).rejects.toMatchObject({ status: 401 })
    await expect(open({ model: 'nobodys' }).invoke(prompt)).rejects.toMatchObject({ status: 404 })
    await expect(open({ temperature: 3 }).invoke(prompt)).rejects.toMatchObject({ status: 422 })
    expect(await findKept(service, prompt)).toBeNull()
  })
})
