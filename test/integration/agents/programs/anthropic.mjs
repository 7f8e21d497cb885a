// The official package, of the version that the first argument names.
import { runWays, schemaOf, TOOLS } from './task.mjs'

const [alias] = process.argv.slice(2)
const { default: Anthropic } = await import(alias)
const { betaTool } = await import(`${alias}/helpers/beta/json-schema`)

const client = new Anthropic()
const asked = { model: 'demo/task', max_tokens: 2000 }
const thinking = { type: 'enabled', budget_tokens: 1024 }
const tools = Object.keys(TOOLS).map((name) => ({ name, input_schema: schemaOf(name) }))
const runnable = Object.entries(TOOLS).map(([name, run]) =>
  betaTool({ name, description: name, inputSchema: schemaOf(name), run }),
)
const textOf = ({ content }) => content.findLast(({ type }) => type === 'text').text

/** Runs the tools that each message calls, until a message calls none. */
async function loop(task, ask) {
  const messages = [{ role: 'user', content: task }]
  for (;;) {
    const message = await ask({ ...asked, messages, tools, thinking })
    messages.push({ role: 'assistant', content: message.content })
    const calls = message.content.filter(({ type }) => type === 'tool_use')
    if (calls.length === 0) return textOf(message)
    const content = calls.map(async ({ id, name, input }) => ({
      type: 'tool_result',
      tool_use_id: id,
      content: await TOOLS[name](input),
    }))
    messages.push({ role: 'user', content: await Promise.all(content) })
  }
}

const runTools = (task, more) =>
  client.beta.messages.toolRunner({
    ...asked,
    tools: runnable,
    messages: [{ role: 'user', content: task }],
    ...more,
  })

await runWays({
  whole: (task) => loop(task, (request) => client.messages.create(request)),
  streamed: (task) => loop(task, (request) => client.messages.stream(request).finalMessage()),
  runner: async (task) => textOf(await runTools(task, {})),
  runnerStreamed: async (task) => {
    let last = null
    for await (const stream of runTools(task, { stream: true })) last = await stream.finalMessage()
    return textOf(last)
  },
})
