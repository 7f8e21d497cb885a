import type { Command } from 'commander'
import type { NodeOptions } from '../node/node-actions.ts'
import { addKeyOption, collectText } from '../options.ts'

export function registerNodeCommand(program: Command): void {
  registerNodeCommands(
    program
      .command('node')
      .description('contribute a machine: run a node agent, and look at what it does')
      .helpCommand(false),
  )
}

export function registerNodeCommands(node: Command): void {
  addBackendOptions(addNodeOptions(addAccessOptions(node.command('run'))))
    .description(
      "serve the models of a local inference server as this machine's node, and create that node " +
        'at first; SIGTERM finishes what runs, for 25 seconds at most (DRAIN_MS), then ends',
    )
    .option(
      '--type <type>',
      'LLM chats, DIFFUSION makes images with one model (NODE_TYPE; default LLM)',
    )
    .action((options: NodeOptions) => act((node) => node.run(options)))
  addAccessOptions(node.command('list'))
    .description("list the account's nodes")
    .option('--all', 'archived nodes, too')
    .option('--json', 'print one JSON array')
    .action((options: NodeOptions) => act((node) => node.listNodes(options)))
  addAccessOptions(node.command('create'))
    .description('create a node; its id is printed on standard output')
    .argument('<name>', 'name of the node, 3 to 40 characters')
    .action((name: string, options: NodeOptions) => act((node) => node.create(name, options)))
  addNodeOptions(addAccessOptions(node.command('status')))
    .description('show what the gateway knows of a node')
    .option('--json', 'print one JSON object')
    .action((options: NodeOptions) => act((node) => node.showStatus(options)))
  addNodeOptions(addAccessOptions(node.command('stats')))
    .description('show what a node has served')
    .option('--json', 'print one JSON object')
    .action((options: NodeOptions) => act((node) => node.showStats(options)))
  addBackendOptions(addNodeOptions(addAccessOptions(node.command('benchmark'))))
    .description('measure the tokens per second of a local inference server')
    .option('--save', 'tell the gateway, for the node')
    .option('--json', 'print one JSON object')
    .action((options: NodeOptions) => act((node) => node.benchmark(options)))
}

/** The module is loaded only when needed, so other commands start faster. */
async function act(
  action: (node: typeof import('../node/node-actions.ts')) => Promise<void>,
): Promise<void> {
  const node = await import('../node/node-actions.ts')
  await node.explain(() => action(node))
}

function addAccessOptions(command: Command): Command {
  return addKeyOption(
    command.option('--url <url>', 'the gateway (AFFIDAVIT_URL; default http://127.0.0.1:3000)'),
  )
}

function addNodeOptions(command: Command): Command {
  return command
    .option('--name <name>', "the node's name (NODE_NAME; default: this machine's host name)")
    .option('--node-id <id>', "the node's id, in place of its name (NODE_ID)")
}

function addBackendOptions(command: Command): Command {
  return command
    .option('--backend <url>', 'the inference server (BACKEND_URL; default: found on this machine)')
    .option(
      '--model <id>',
      'a model to serve; may be repeated (NODE_MODELS; default: all)',
      collectText,
    )
    .option('--benchmark-ms <ms>', 'length of a benchmark (BENCHMARK_MS; default 60000)')
}
