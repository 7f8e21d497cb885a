import { printable } from '#attestation/report/printable.ts'
import { BackendError } from '../../agent/backend-error.ts'
import { type BenchmarkResult, runBenchmark } from '../../agent/benchmark.ts'
import {
  type GatewayAccess,
  readBenchmarkConfig,
  readGatewayAccess,
  readNodeAccess,
  readRunConfig,
} from '../../agent/config.ts'
import { openBackend } from '../../agent/find-backend.ts'
import {
  createGatewayClient,
  type GatewayClient,
  GatewayError,
} from '../../agent/gateway-client.ts'
import type { ProgressBar } from '../../agent/progress-bar.ts'
import { AgentFailure, chooseModels } from '../../agent/registration.ts'
import { openProcessLogger } from '../../observability/logger.ts'
import type { Environment } from '../../runtime/read-settings.ts'
import { CliError } from '../faults.ts'
import { checkKeyOrigin } from '../gateway-access.ts'
import { jsonText, textTable } from '../printable.ts'
import { describeMembers, describeNodes, type Facts } from './describe-node.ts'
import { speedText } from './figures.ts'
import { findOwnNode, openOwnNode } from './own-node.ts'
import { createRunLines } from './run-lines.ts'

/** Each option sets a variable of src/agent/config.ts. */
export type NodeOptions = {
  readonly url?: string
  readonly key?: string
  readonly nodeId?: string
  readonly name?: string
  readonly type?: string
  readonly backend?: string
  readonly model?: readonly string[]
  readonly benchmarkMs?: string
  readonly save?: boolean
  readonly all?: boolean
  readonly json?: boolean
}

/** Prints no stack trace if the node's operator can remove the fault. */
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

/**
 * Runs the agent of this machine's node until a signal arrives. Creates the node if none exists.
 * Prints the log as sentences on a terminal, otherwise as JSON lines.
 */
export async function run(options: NodeOptions): Promise<void> {
  const config = readRunConfig(toAccessVariables(options))
  const { runAgent } = await import('../../agent/run-agent.ts')
  const bar = await openProgressBar()
  const describeLine = createRunLines({
    gatewayUrl: config.gatewayUrl,
    nodeName: config.nodeId === null ? config.nodeName : null,
  })
  const log = await openProcessLogger(config.logLevel, (line) => {
    // Otherwise the next log line would continue the bar's line.
    bar.stop()
    return describeLine(line)
  })
  try {
    const nodeId = await openOwnNode(config, { gateway: openGateway(config), log })
    await runAgent({ ...config, nodeId }, { log, onBenchmarkProgress: bar.show })
  } finally {
    bar.stop()
  }
}

/** The module is loaded only when needed: some commands show no bar. */
async function openProgressBar(): Promise<ProgressBar> {
  const { createProgressBar } = await import('../../agent/progress-bar.ts')
  return createProgressBar(process.stderr)
}

export async function create(name: string, options: NodeOptions): Promise<void> {
  const nodeId = await openGateway(readGatewayAccess(toAccessVariables(options))).createNode(name)
  process.stdout.write(`${printable(nodeId)}\n`)
}

export function showStatus(options: NodeOptions): Promise<void> {
  return show(options, fetchStatus)
}

export function showStats(options: NodeOptions): Promise<void> {
  return show(options, (gateway, nodeId) => gateway.fetchStats(nodeId))
}

export async function listNodes(options: NodeOptions): Promise<void> {
  const access = readGatewayAccess(toAccessVariables(options))
  const nodes = await openGateway(access).listNodes()
  const shown = nodes.filter((node) => options.all === true || node.is_archived !== true)
  process.stdout.write(options.json ? jsonText(shown) : describeNodes(shown))
}

async function show(
  options: NodeOptions,
  fetch: (gateway: GatewayClient, nodeId: string) => Promise<Facts>,
): Promise<void> {
  const access = readNodeAccess(toAccessVariables(options))
  const gateway = openGateway(access)
  const facts = await fetch(gateway, await findOwnNode(access, gateway))
  process.stdout.write(options.json ? jsonText(facts) : describeMembers(facts))
}

async function fetchStatus(gateway: GatewayClient, nodeId: string): Promise<Facts> {
  const info = await gateway.findNode(nodeId)
  if (info === null)
    throw new CliError(`the gateway knows no node ${printable(nodeId)} of this key's account`)
  return info
}

export async function benchmark(options: NodeOptions): Promise<void> {
  const config = readBenchmarkConfig(toVariables(options))
  const access = options.save === true ? readNodeAccess(toAccessVariables(options)) : null
  const { backend, name } = await openBackend(config.backend)
  const bar = await openProgressBar()
  const results: Record<string, BenchmarkResult> = {}
  let failure: BackendError | null = null
  try {
    process.stderr.write(`Measuring ${printable(name)}\n`)
    const models = chooseModels(await backend.listModels(), {
      models: config.backend.models,
      log: SILENT,
    })
    for (const model of models)
      try {
        results[model] = await runBenchmark(backend, model, {
          plan: config,
          now: () => performance.now(),
          signal: NEVER,
          onProgress: (progress) => bar.show(model, progress),
        })
      } catch (fault) {
        if (!(fault instanceof BackendError)) throw fault
        failure = fault
        bar.stop()
        process.stderr.write(`${printable(model)} is left out: ${printable(fault.message)}\n`)
      }
  } finally {
    bar.stop()
    await backend.close()
  }
  if (access !== null) {
    const gateway = openGateway(access)
    await save(gateway, await findOwnNode(access, gateway), results)
  }
  if (failure !== null && Object.keys(results).length === 0) throw failure
  const rows = Object.entries(results).map(([model, { single, total }]) => [
    model,
    speedText(total),
    speedText(single),
  ])
  const titles = ['MODEL', `${config.concurrency} REQUESTS AT ONCE`, 'ONE REQUEST']
  const shown = { tokens_per_second: results }
  process.stdout.write(options.json ? jsonText(shown) : textTable(titles, rows))
  // Only models that the user named must all have been measured.
  if (failure !== null && config.backend.models !== null) throw failure
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

function openGateway({ gatewayUrl: url, apiKey }: GatewayAccess): GatewayClient {
  return createGatewayClient({ url, apiKey })
}

function toVariables(options: NodeOptions): Environment {
  return {
    AFFIDAVIT_URL: options.url,
    AFFIDAVIT_API_KEY: options.key,
    NODE_ID: options.nodeId,
    NODE_NAME: options.name,
    NODE_TYPE: options.type,
    BACKEND_URL: options.backend,
    NODE_MODELS: options.model?.join(','),
    BENCHMARK_MS: options.benchmarkMs,
  }
}

/** Throws CliError if the environment's key is for another gateway than `--url`. */
function toAccessVariables(options: NodeOptions): Environment {
  checkKeyOrigin(options)
  return toVariables(options)
}
