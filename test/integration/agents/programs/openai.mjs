// The official package, of the version that the first argument names.
import { runWays, schemaOf, TOOLS } from './task.mjs'

const [alias] = process.argv.slice(2)
const { default: OpenAI } = await import(alias)

const client = new OpenAI()
const model = 'demo/task'
const reasoning = { effort: 'low', summary: 'auto' }
const tools = Object.keys(TOOLS).map((name) => ({
  type: 'function',
  name,
  parameters: schemaOf(name),
  strict: true,
}))

const textOf = ({ output }) => output.findLast(({ type }) => type === 'message').content[0].text

/** Runs the tools that each answer calls, until an answer calls none. */
async function loop(task, ask) {
  const input = [{ role: 'user', content: task }]
  for (;;) {
    const response = await ask({ model, input, tools, reasoning })
    input.push(...response.output)
    const calls = response.output.filter(({ type }) => type === 'function_call')
    if (calls.length === 0) return textOf(response)
    for (const { name, arguments: text, call_id } of calls) {
      const output = await TOOLS[name](JSON.parse(text))
      input.push({ type: 'function_call_output', call_id, output })
    }
  }
}

/** Collects the finished items, as programs without the stream helper do. */
async function streamed(request) {
  const output = []
  for await (const event of await client.responses.create({ ...request, stream: true }))
    if (event.type === 'response.output_item.done') output.push(event.item)
  return { output }
}

await runWays({
  whole: (task) => loop(task, (request) => client.responses.create(request)),
  streamed: (task) => loop(task, streamed),
  helper: (task) => loop(task, (request) => client.responses.stream(request).finalResponse()),
  parse: async (task) => {
    const said = await loop(task, (request) => client.responses.parse(request))
    const schema = { type: 'object', properties: { age: { type: 'integer' } }, required: ['age'] }
    const format = { type: 'json_schema', name: 'person', schema }
    const request = { model: 'demo/echo', input: 'A person', text: { format } }
    const { output_parsed } = await client.responses.parse(request)
    if (!Number.isInteger(output_parsed.age)) throw new Error('expected a parsed object')
    return said
  },
})
