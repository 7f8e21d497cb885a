import type { Command } from 'commander'
import type { Environment } from '../runtime/read-settings.ts'
import { checkKeyOrigin } from './gateway-key.ts'
import { printable } from './printable.ts'

/**
 * Gives the members of an answer of the gateway for people, one a line, in its order. Names that end in `_at` are Unix
 * seconds, those in `_seconds` a length of time. Lists of objects follow, a line each. All of it is text from outside.
 */
export function printMembers(members: Readonly<Record<string, unknown>>): string {
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
  if (typeof value !== 'number') return printable(typeof value === 'string' ? value : JSON.stringify(value))
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
