// The ai package, with the provider that the first argument names, and options of that provider.
import { generateText, isStepCount, jsonSchema, streamText, tool } from 'ai'
import { runWays, schemaOf, TOOLS } from './task.mjs'

const [name, options = '{}'] = process.argv.slice(2)
const provider = (await import(`@ai-sdk/${name}`))[name]
const request = {
  model: provider('demo/task'),
  providerOptions: { [name]: JSON.parse(options) },
  stopWhen: isStepCount(9),
  tools: Object.fromEntries(
    Object.entries(TOOLS).map(([name, execute]) => [
      name,
      tool({ description: name, inputSchema: jsonSchema(schemaOf(name)), execute }),
    ]),
  ),
}

await runWays({
  whole: async (prompt) => (await generateText({ ...request, prompt })).text,
  streamed: (prompt) => streamText({ ...request, prompt }).text,
})
