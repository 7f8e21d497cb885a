import Anthropic, { type ClientOptions } from '@anthropic-ai/sdk'
import type OpenAI from 'openai'

/** A task for `demo/task`: two calls of a tool, one after the other, and then an answer. */
const TASK = 'First read_file({"path":"a.txt"}), then read_file({"path":"b.txt"}).'
/** A part of the last answer: what the second tool gave. */
export const TASK_ANSWER = 'content of'

const CALLS_MAX = 5
const parameters = { type: 'object' as const, properties: { path: { type: 'string' } } }

/** Runs the task as an agent does over Responses, streamed. Returns the last answer. */
export async function runResponsesTask(openai: OpenAI): Promise<string> {
  const tools = [{ type: 'function' as const, name: 'read_file', parameters, strict: false }]
  const input: OpenAI.Responses.ResponseInput = [{ role: 'user', content: TASK }]
  for (let call = 0; call < CALLS_MAX; call++) {
    const stream = openai.responses.stream({ model: 'demo/task', input, tools })
    const response = await stream.finalResponse()
    input.push(...(response.output as OpenAI.Responses.ResponseInputItem[]))
    const asked = response.output.filter((item) => item.type === 'function_call')
    if (asked.length === 0) return response.output_text
    for (const { call_id, arguments: text } of asked)
      input.push({ type: 'function_call_output', call_id, output: `content of ${text}` })
  }
  throw new Error('expected the task to end')
}

/** Runs the task as an agent does over Messages, streamed, with thinking. */
export async function runMessagesTask(anthropic: Anthropic): Promise<string> {
  const messages: Anthropic.MessageParam[] = [{ role: 'user', content: TASK }]
  for (let call = 0; call < CALLS_MAX; call++) {
    const stream = anthropic.messages.stream({
      model: 'demo/task',
      max_tokens: 2000,
      messages,
      thinking: { type: 'enabled', budget_tokens: 1024 },
      tools: [{ name: 'read_file', input_schema: parameters }],
    })
    const message = await stream.finalMessage()
    messages.push({ role: 'assistant', content: message.content })
    const asked = message.content.filter((block) => block.type === 'tool_use')
    if (asked.length === 0) return JSON.stringify(message.content)
    messages.push({
      role: 'user',
      content: asked.map(({ id, input }) => ({
        type: 'tool_result' as const,
        tool_use_id: id,
        content: `content of ${JSON.stringify(input)}`,
      })),
    })
  }
  throw new Error('expected the task to end')
}

/**
 * Has Anthropic's tool runner say `text` to `demo/echo`. It first asks for a thread, and goes on
 * without one only if the refusal says so. Returns the answer.
 */
export async function runThreaded(
  { fetch: send = fetch, ...options }: ClientOptions & { readonly fetch?: typeof fetch },
  text: string,
): Promise<string> {
  const isThreaded: boolean[] = []
  const anthropic = new Anthropic({
    ...options,
    maxRetries: 0,
    fetch(url, init) {
      isThreaded.push(Object.hasOwn(JSON.parse(String(init?.body)), 'thread'))
      return send(url, init)
    },
  })
  const messages = [{ role: 'user' as const, content: text }]
  const request = { model: 'demo/echo', max_tokens: 100, messages, tools: [] }
  const message = await anthropic.beta.messages.toolRunner(request).runUntilDone()
  if (isThreaded.join() !== 'true,false')
    throw new Error(`expected a call with a thread, then one without, got ${isThreaded.join()}`)
  return JSON.stringify(message.content)
}
