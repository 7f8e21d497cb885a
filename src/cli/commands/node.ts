import type { Command } from 'commander'
import { BackendError } from '../../agent/backend-error.ts'
import { type BenchmarkResult, runBenchmark } from '../../agent/benchmark.ts'
import {
  type GatewayAccess,
  readAgentConfig,
  readBenchmarkConfig,
  readGatewayAccess,
  readNodeAccess,
} from '../../agent/config.ts'
import { openBackend } from '../../agent/find-backend.ts'
import { createGatewayClient, type GatewayClient, GatewayError } from '../../agent/gateway-client.ts'
import type { ProgressBar } from '../../agent/progress-bar.ts'
import { AgentFailure, chooseModels } from '../../agent/registration.ts'
import { createLogger, openLogDestination } from '../../observability/logger.ts'
import { CliError } from '../exit-codes.ts'
import {
  addAccessOptions,
  addBackendOptions,
  addNodeIdOption,
  type NodeOptions,
  printMembers,
  toAccessVariables,
  toVariables,
} from '../node-actions.ts'
import { printable } from '../printable.ts'

/** Adds `node run | create | status | stats | benchmark`, for whoever contributes a machine. */
export function registerNode(program: Command): void {
  const node = program
    .command('node')
    .description('contribute a machine: run a node agent, and look at what it does')
    .helpCommand(false)
  addBackendOptions(addNodeIdOption(addAccessOptions(node.command('run'))))
    .description('serve the models of a local inference server; SIGTERM finishes what runs, then ends')
    .option('--type <type>', 'LLM chats, DIFFUSION makes images with one model (NODE_TYPE; default LLM)')
    .action((options: NodeOptions) => explain(() => run(options)))
  addAccessOptions(node.command('create'))
    .description('make a node; its id is printed on standard output')
    .argument('<name>', 'name of the node, 3 to 40 characters')
    .action((name: string, options: NodeOptions) => explain(() => create(name, options)))
  addNodeIdOption(addAccessOptions(node.command('status')))
    .description('show what the gateway knows of a node')
    .option('--json', 'print one JSON object')
    .action((options: NodeOptions) => explain(() => show(options, fetchStatus)))
  addNodeIdOption(addAccessOptions(node.command('stats')))
    .description('show what a node has served')
    .option('--json', 'print one JSON object')
    .action((options: NodeOptions) =>
      explain(() => show(options, (gateway, nodeId) => gateway.fetchStats(nodeId))),
    )
  addBackendOptions(addNodeIdOption(addAccessOptions(node.command('benchmark'))))
    .description('measure the tokens per second of a local inference server')
    .option('--save', 'tell the gateway, for the node')
    .option('--json', 'print one JSON object')
    .action((options: NodeOptions & { readonly save?: boolean }) => explain(() => benchmark(options)))
}

/** The faults that a node's operator can mend are told without a stack. */
async function explain(action: () => Promise<void>): Promise<void> {
  try {
    await action()
  } catch (fault) {
    if (fault instanceof AgentFailure || fault instanceof GatewayError || fault instanceof BackendError)
      throw new CliError(printable(fault.message))
    throw fault
  }
}

async function run(options: NodeOptions): Promise<void> {
  const config = readAgentConfig(toAccessVariables(options))
  const { runAgent } = await import('../../agent/run-agent.ts')
  const log = createLogger({ level: config.logLevel, destination: await openLogDestination() })
  const bar = await openProgressBar()
  try {
    await runAgent(config, { log, onBenchmarkProgress: bar.show })
  } finally {
    bar.stop()
  }
}

/** Loaded where it is used, as the agent is: other commands start without them. */
async function openProgressBar(): Promise<ProgressBar> {
  const { createProgressBar } = await import('../../agent/progress-bar.ts')
  return createProgressBar(process.stderr)
}

async function create(name: string, options: NodeOptions): Promise<void> {
  const nodeId = await withGateway(readGatewayAccess(toAccessVariables(options)), (gateway) =>
    gateway.createNode(name),
  )
  process.stdout.write(`${printable(nodeId)}\n`)
}

async function show(
  options: NodeOptions,
  fetch: (gateway: GatewayClient, nodeId: string) => Promise<Readonly<Record<string, unknown>>>,
): Promise<void> {
  const access = readNodeAccess(toAccessVariables(options))
  const facts = await withGateway(access, (gateway) => fetch(gateway, access.nodeId))
  process.stdout.write(options.json ? `${JSON.stringify(facts, null, 2)}\n` : printMembers(facts))
}

async function fetchStatus(
  gateway: GatewayClient,
  nodeId: string,
): Promise<Readonly<Record<string, unknown>>> {
  const info = await gateway.findNode(nodeId)
  if (info === null)
    throw new CliError(`the gateway knows no node ${printable(nodeId)} of this key's account`)
  return info
}

async function benchmark(options: NodeOptions & { readonly save?: boolean }): Promise<void> {
  const config = readBenchmarkConfig(toVariables(options))
  const access = options.save === true ? readNodeAccess(toAccessVariables(options)) : null
  const { backend, name } = await openBackend(config.backend)
  const bar = await openProgressBar()
  const results: Record<string, BenchmarkResult> = {}
  try {
    process.stderr.write(`Measuring ${printable(name)}\n`)
    const models = chooseModels(await backend.listModels(), { models: config.backend.models, log: SILENT })
    for (const model of models)
      results[model] = await runBenchmark(backend, model, {
        plan: config,
        now: () => performance.now(),
        signal: NEVER,
        onProgress: (progress) => bar.show(model, progress),
      })
  } finally {
    bar.stop()
    await backend.close()
  }
  if (access !== null) await withGateway(access, (gateway) => save(gateway, access.nodeId, results))
  const rows = Object.entries(results).map(([model, { single, total }]) => [
    model,
    `${total} tokens/s, ${single} for one request`,
  ])
  const shown = { tokens_per_second: results }
  process.stdout.write(
    options.json ? `${JSON.stringify(shown, null, 2)}\n` : printMembers(Object.fromEntries(rows)),
  )
}

const NEVER = new AbortController().signal
const ignore = () => undefined
const SILENT = { debug: ignore, info: ignore, warn: ignore, error: ignore }

async function save(
  gateway: GatewayClient,
  nodeId: string,
  results: Readonly<Record<string, BenchmarkResult>>,
): Promise<void> {
  for (const [model, { total }] of Object.entries(results))
    await gateway.saveBenchmark({ nodeId, model, tokensPerSecond: total })
}

async function withGateway<Value>(
  { gatewayUrl, apiKey }: GatewayAccess,
  ask: (gateway: GatewayClient) => Promise<Value>,
): Promise<Value> {
  const gateway = createGatewayClient({ url: gatewayUrl, apiKey })
  try {
    return await ask(gateway)
  } finally {
    await gateway.close()
  }
}
