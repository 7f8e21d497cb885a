import { Agent, run, tool } from '@openai/agents'
import { runWays, schemaOf, TOOLS } from './task.mjs'

const agent = new Agent({
  name: 'worker',
  model: 'demo/task',
  tools: Object.entries(TOOLS).map(([name, execute]) =>
    tool({ name, description: name, parameters: schemaOf(name), strict: true, execute }),
  ),
})

await runWays({
  whole: async (task) => (await run(agent, task)).finalOutput,
  streamed: async (task) => {
    const running = await run(agent, task, { stream: true })
    for await (const _ of running);
    await running.completed
    return running.finalOutput
  },
})
