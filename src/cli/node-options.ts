import type { Command } from 'commander'
import type { Environment } from '../runtime/read-settings.ts'
import { checkKeyOrigin } from './gateway-key.ts'

/** Options of the `node` commands as commander gives them. Each stands for a variable of src/agent/config.ts. */
export type NodeOptions = {
  readonly url?: string
  readonly key?: string
  readonly nodeId?: string
  readonly type?: string
  readonly backend?: string
  readonly model?: readonly string[]
  readonly benchmarkMs?: string
  readonly json?: boolean
}

/** Adds the options that say which gateway, and with which key. */
export function addAccessOptions(command: Command): Command {
  return command
    .option('--url <url>', 'the gateway (AFFIDAVIT_URL; default http://127.0.0.1:3000)')
    .option('--key <key>', 'API key (better: in AFFIDAVIT_API_KEY, which goes to AFFIDAVIT_URL alone)')
}

/** Adds the option that says which node. */
export function addNodeIdOption(command: Command): Command {
  return command.option('--node-id <id>', 'the node (NODE_ID)')
}

/** Adds the options that say which backend, which of its models, and how long to measure them. */
export function addBackendOptions(command: Command): Command {
  return command
    .option('--backend <url>', 'the inference server (BACKEND_URL; default: found on this machine)')
    .option('--model <id>', 'a model to serve; may be repeated (NODE_MODELS; default: all)', collectText)
    .option('--benchmark-ms <ms>', 'length of a benchmark (BENCHMARK_MS; default 60000)')
}

/** Gives the variables that the options stand for. */
export function toVariables(options: NodeOptions): Environment {
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
 * The same, for what asks the gateway. Throws CliError when the environment's key is not for the gateway of `--url`: that
 * one would be sent it.
 */
export function toAccessVariables(options: NodeOptions): Environment {
  checkKeyOrigin(options)
  return toVariables(options)
}

function collectText(text: string, before: readonly string[] = []): readonly string[] {
  return [...before, text]
}
