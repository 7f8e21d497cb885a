import { createOpenAICompatible } from '@ai-sdk/openai-compatible'
import { APICallError, generateText, isStepCount, Output, streamText, tool } from 'ai'
import { beforeAll, describe, expect, it } from 'vitest'
import { z } from 'zod'
import { findKept } from '../../support/kept-completions.ts'
import { type SharedAffidavit, useAffidavit } from '../../support/use-affidavit.ts'

let service: SharedAffidavit
beforeAll(async () => {
  service = await useAffidavit()
})

function openProvider(path: string, apiKey = service.apiKey) {
  const baseURL = service.url + path
  return createOpenAICompatible({
    name: 'affidavit',
    baseURL,
    apiKey,
    includeUsage: true,
    supportsStructuredOutputs: true,
  })
}

const weather = tool({
  description: 'Weather of a city',
  inputSchema: z.object({ city: z.string() }),
  execute: async ({ city }) => `rain in ${city}`,
})

describe.each([
  ['/v1', false],
  ['/v1/dashboard', false],
  ['/v1/verified', true],
])('the ai package, pointed at %s', (path, isVerified) => {
  const model = (id = 'demo/echo') => openProvider(path)(id)
  /** A prompt that is unique in this file. */
  const ask = (text: string) => `${text} through ${path} with the AI SDK`

  it('the ai package generates a text, with usage and the reason of its end', async () => {
    const prompt = ask('a whole text')
    const answer = await generateText({ model: model(), prompt, maxRetries: 0 })
    expect(answer.text).toBe(`[demonstration] You said: ${prompt}`)
    expect(answer.finishReason).toBe('stop')
    expect(answer.usage.totalTokens).toBeGreaterThan(10)
    const kept = await findKept(service, prompt)
    expect(kept?.response.usage.total_tokens).toBe(
      isVerified ? answer.usage.totalTokens : undefined,
    )
  })

  it('the ai package streams the same text in many parts, with the same usage', async () => {
    const prompt = ask('a stream')
    const whole = await generateText({ model: model(), prompt, maxRetries: 0 })
    const stream = streamText({ model: model(), prompt, maxRetries: 0 })
    const parts: string[] = []
    for await (const part of stream.textStream) parts.push(part)
    expect(parts.length).toBeGreaterThan(3)
    expect(parts.join('')).toBe(whole.text)
    expect(await stream.finishReason).toBe('stop')
    expect((await stream.usage).totalTokens).toBe(whole.usage.totalTokens)
    expect((await findKept(service, prompt))?.request.stream).toBe(isVerified ? true : undefined)
  })

  it('the ai package calls a tool, runs it, and answers with what it said', async () => {
    const prompt = ask('get_weather({"city":"Oslo"})')
    const question = {
      model: model(),
      prompt,
      tools: { get_weather: weather },
      stopWhen: isStepCount(3),
    }
    const answer = await generateText({ ...question, maxRetries: 0 })
    expect(answer.steps.map(({ finishReason }) => finishReason)).toEqual(['tool-calls', 'stop'])
    expect(answer.steps[0]?.toolResults).toMatchObject([
      { input: { city: 'Oslo' }, output: 'rain in Oslo' },
    ])
    expect(answer.text).toBe('[demonstration] The tool answered: rain in Oslo')
    const stream = streamText({ ...question, maxRetries: 0 })
    expect(await stream.text).toBe(answer.text)
    expect((await stream.steps)[0]?.toolCalls).toMatchObject([{ input: { city: 'Oslo' } }])
  })

  it('the ai package gives an object of the schema, streamed or not', async () => {
    const schema = z.object({
      name: z.string().max(4),
      born: z.iso.date(),
      tags: z.array(z.string()).min(2),
    })
    const request = {
      model: model(),
      prompt: ask('a person'),
      output: Output.object({ schema }),
      maxRetries: 0,
    }
    const { output } = await generateText(request)
    expect(schema.parse(output)).toEqual(output)
    const stream = streamText(request)
    expect(await stream.output).toEqual(output)
  })

  it('the ai package throws its own error for each refusal, and says whether it can be tried again', async () => {
    const refusalOf = async (call: Promise<unknown>) => {
      const error: unknown = await call.catch((reason: unknown) => reason)
      if (!APICallError.isInstance(error)) throw new Error('expected an APICallError')
      return [error.statusCode, error.isRetryable]
    }
    const prompt = ask('refused')
    const wrongKey = openProvider(path, 'wrong')('demo/echo')
    expect(await refusalOf(generateText({ model: wrongKey, prompt, maxRetries: 0 }))).toEqual([
      401,
      false,
    ])
    expect(
      await refusalOf(generateText({ model: model('nobodys'), prompt, maxRetries: 0 })),
    ).toEqual([404, false])
    expect(
      await refusalOf(generateText({ model: model(), prompt, temperature: 3, maxRetries: 0 })),
    ).toEqual([422, false])
    expect(await findKept(service, prompt)).toBeNull()
  })
})
