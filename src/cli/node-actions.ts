import { printable } from '../../attestation/report/printable.ts'
import { BackendError } from '../agent/backend-error.ts'
import { type BenchmarkResult, runBenchmark } from '../agent/benchmark.ts'
import {
  type GatewayAccess,
  readAgentConfig,
  readBenchmarkConfig,
  readGatewayAccess,
  readNodeAccess,
} from '../agent/config.ts'
import { openBackend } from '../agent/find-backend.ts'
import { createGatewayClient, type GatewayClient, GatewayError } from '../agent/gateway-client.ts'
import type { ProgressBar } from '../agent/progress-bar.ts'
import { AgentFailure, chooseModels } from '../agent/registration.ts'
import { openProcessLogger } from '../observability/logger.ts'
import type { Environment } from '../runtime/read-settings.ts'
import { CliError } from './faults.ts'
import { checkKeyOrigin } from './gateway-access.ts'
import { jsonText } from './printable.ts'

/**
 * Options of the `node` commands as commander gives them. Each stands for a variable of
 * src/agent/config.ts.
 */
export type NodeOptions = {
  readonly url?: string
  readonly key?: string
  readonly nodeId?: string
  readonly type?: string
  readonly backend?: string
  readonly model?: readonly string[]
  readonly benchmarkMs?: string
  readonly save?: boolean
  readonly json?: boolean
}

/** The faults that a node's operator can mend are told without a stack. */
export async function explain(action: () => Promise<void>): Promise<void> {
  try {
    await action()
  } catch (fault) {
    if (
      fault instanceof AgentFailure ||
      fault instanceof GatewayError ||
      fault instanceof BackendError
    )
      throw new CliError(printable(fault.message))
    throw fault
  }
}

/** Runs a node agent until it is told to end. */
export async function run(options: NodeOptions): Promise<void> {
  const config = readAgentConfig(toAccessVariables(options))
  const { runAgent } = await import('../agent/run-agent.ts')
  const log = await openProcessLogger(config.logLevel)
  const bar = await openProgressBar()
  try {
    await runAgent(config, { log, onBenchmarkProgress: bar.show })
  } finally {
    bar.stop()
  }
}

/** Loaded where it is used: not all of these show one. */
async function openProgressBar(): Promise<ProgressBar> {
  const { createProgressBar } = await import('../agent/progress-bar.ts')
  return createProgressBar(process.stderr)
}

/** Makes a node, and prints its id. */
export async function create(name: string, options: NodeOptions): Promise<void> {
  const nodeId = await withGateway(readGatewayAccess(toAccessVariables(options)), (gateway) =>
    gateway.createNode(name),
  )
  process.stdout.write(`${printable(nodeId)}\n`)
}

/** Shows what the gateway knows of a node. */
export function showStatus(options: NodeOptions): Promise<void> {
  return show(options, fetchStatus)
}

/** Shows what a node has served. */
export function showStats(options: NodeOptions): Promise<void> {
  return show(options, (gateway, nodeId) => gateway.fetchStats(nodeId))
}

type Facts = Readonly<Record<string, unknown>>

async function show(
  options: NodeOptions,
  fetch: (gateway: GatewayClient, nodeId: string) => Promise<Facts>,
): Promise<void> {
  const access = readNodeAccess(toAccessVariables(options))
  const facts = await withGateway(access, (gateway) => fetch(gateway, access.nodeId))
  process.stdout.write(options.json ? jsonText(facts) : printMembers(facts))
}

async function fetchStatus(gateway: GatewayClient, nodeId: string): Promise<Facts> {
  const info = await gateway.findNode(nodeId)
  if (info === null)
    throw new CliError(`the gateway knows no node ${printable(nodeId)} of this key's account`)
  return info
}

/** Measures the models of a local inference server. */
export async function benchmark(options: NodeOptions): Promise<void> {
  const config = readBenchmarkConfig(toVariables(options))
  const access = options.save === true ? readNodeAccess(toAccessVariables(options)) : null
  const { backend, name } = await openBackend(config.backend)
  const bar = await openProgressBar()
  const results: Record<string, BenchmarkResult> = {}
  try {
    process.stderr.write(`Measuring ${printable(name)}\n`)
    const models = chooseModels(await backend.listModels(), {
      models: config.backend.models,
      log: SILENT,
    })
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
  process.stdout.write(options.json ? jsonText(shown) : printMembers(Object.fromEntries(rows)))
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

/** Gives the variables that the options stand for. */
function toVariables(options: NodeOptions): Environment {
  return {
    AFFIDAVIT_URL: options.url,
    AFFIDAVIT_API_KEY: options.key,
    NODE_ID: options.nodeId,
    NODE_TYPE: options.type,
    BACKEND_URL: options.backend,
    NODE_MODELS: options.model?.join(','),
    BENCHMARK_MS: options.benchmarkMs,
  }
}

/**
 * The same, for what asks the gateway. Throws CliError when the environment's key is not for the
 * gateway of `--url`: that one would be sent it.
 */
function toAccessVariables(options: NodeOptions): Environment {
  checkKeyOrigin(options)
  return toVariables(options)
}

/**
 * Gives the members of an answer of the gateway for people, one a line, in its order. Names that
 * end in `_at` are Unix seconds, those in `_seconds` a length of time. Lists of objects follow, a
 * line each. All of it is text from outside.
 */
function printMembers(members: Facts): string {
  const entries = Object.entries(members)
  const width = Math.max(0, ...entries.map(([name]) => printable(name).length))
  const lines = entries.flatMap(([name, value]) => {
    const label = printable(name).padEnd(width)
    if (!Array.isArray(value)) return [`${label}  ${describeValue(name, value)}`]
    return [`${label}  ${value.length}`, ...value.map((item) => `  ${describeItem(item)}`)]
  })
  return lines.map((line) => `${line}\n`).join('')
}

function describeValue(name: string, value: unknown): string {
  if (value === null || value === undefined) return '-'
  if (typeof value !== 'number')
    return printable(typeof value === 'string' ? value : JSON.stringify(value))
  if (name.endsWith('_at')) return value > 0 ? describeTime(value) : '-'
  return name.endsWith('_seconds') ? describeLength(value) : String(value)
}

function describeItem(item: unknown): string {
  if (typeof item !== 'object' || item === null) return printable(JSON.stringify(item))
  return Object.entries(item)
    .map(([name, value]) => `${printable(name)} ${describeValue(name, value)}`)
    .join(', ')
}

/** Latest second that a Date can hold. */
const TIME_MAX = 8_640_000_000_000

function describeTime(seconds: number): string {
  if (seconds > TIME_MAX) return String(seconds)
  return `${new Date(seconds * 1000).toISOString().slice(0, 19).replace('T', ' ')} UTC`
}

function describeLength(seconds: number): string {
  const whole = Math.floor(seconds)
  const parts = [
    [Math.floor(whole / 86_400), 'd'],
    [Math.floor(whole / 3600) % 24, 'h'],
    [Math.floor(whole / 60) % 60, 'min'],
    [whole % 60, 's'],
  ] as const
  const shown = parts.filter(([count]) => count > 0).map(([count, unit]) => `${count} ${unit}`)
  return shown.length === 0 ? '0 s' : shown.slice(0, 2).join(' ')
}
