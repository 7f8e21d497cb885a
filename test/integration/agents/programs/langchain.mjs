// LangChain, with the model class of the vendor that the first argument names.
import { HumanMessage } from '@langchain/core/messages'
import { tool } from '@langchain/core/tools'
import { runWays, schemaOf, TOOLS } from './task.mjs'

const CLASSES = {
  openai: async () => {
    const { ChatOpenAI } = await import('@langchain/openai')
    return new ChatOpenAI({ model: 'demo/task', useResponsesApi: true })
  },
  anthropic: async () => {
    const { ChatAnthropic } = await import('@langchain/anthropic')
    return new ChatAnthropic({ model: 'demo/task' })
  },
}

const [vendor] = process.argv.slice(2)
const tools = Object.entries(TOOLS).map(([name, run]) =>
  tool(run, { name, description: name, schema: schemaOf(name) }),
)
const model = (await CLASSES[vendor]()).bindTools(tools)

/** Runs the tools that each message calls, until a message calls none. */
async function loop(task, ask) {
  const messages = [new HumanMessage(task)]
  for (;;) {
    const message = await ask(messages)
    messages.push(message)
    if (message.tool_calls.length === 0) return message.text
    for (const call of message.tool_calls)
      messages.push(await tools.find(({ name }) => name === call.name).invoke(call))
  }
}

async function streamed(messages) {
  let gathered = null
  for await (const chunk of await model.stream(messages))
    gathered = gathered === null ? chunk : gathered.concat(chunk)
  return gathered
}

await runWays({
  whole: (task) => loop(task, (messages) => model.invoke(messages)),
  streamed: (task) => loop(task, streamed),
})
