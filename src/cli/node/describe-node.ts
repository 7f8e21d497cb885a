import { printable } from '#attestation/report/printable.ts'
import type { ListedNode } from '../../agent/gateway-client.ts'
import { textTable } from '../printable.ts'
import {
  countText,
  decimals,
  lengthText,
  memoryText,
  millisecondsText,
  speedText,
  timeText,
} from './figures.ts'

/** Members of the gateway's answer. Their texts are not trusted. */
export type Facts = Readonly<Record<string, unknown>>

/** `figure` writes a number with its unit. */
type Shown = { readonly label: string; readonly figure?: (value: number) => string }

/** Members of `GET /v1/node/info` and `GET /v1/node/stats`. */
const MEMBERS: ReadonlyMap<string, Shown> = new Map(
  Object.entries({
    node_id: { label: 'Node id' },
    name_alias: { label: 'Name' },
    status: { label: 'State' },
    gpu_model: { label: 'GPU' },
    vram: { label: 'GPU memory', figure: memoryText },
    gpu_count: { label: 'Number of GPUs', figure: (count) => countText(count, 'GPU') },
    power_limit: { label: 'GPU power limit', figure: (watts) => `${decimals(watts, 0)} W` },
    cpu_model: { label: 'Processor' },
    cpu_count: { label: 'Processor cores', figure: (count) => countText(count, 'core') },
    ram: { label: 'Memory', figure: memoryText },
    network_download_speed: { label: 'Network card, receiving', figure: megabits },
    network_upload_speed: { label: 'Network card, sending', figure: megabits },
    operating_system: { label: 'Operating system' },
    version: { label: 'Agent version' },
    run_duration_seconds: { label: 'Connected for', figure: lengthText },
    node_created_at: { label: 'Created at', figure: timeText },
    requests_served: { label: 'Served', figure: requests },
    requests_served_day: { label: 'Served in the last 24 hours', figure: requests },
    average_time_to_first_token: {
      label: 'Time to the first token, average of the last 24 hours',
      figure: (seconds) => millisecondsText(seconds * 1000),
    },
    benchmark_tokens_per_second: { label: 'Newest benchmark', figure: speedText },
    benchmark_model_name: { label: 'Newest benchmark, model' },
    benchmark_created_at: { label: 'Newest benchmark, made at', figure: timeText },
    completed_inferences: { label: 'Last answers', figure: (count) => countText(count, 'answer') },
    created_at: { label: '', figure: timeText },
    model_name: { label: '' },
    prompt_tokens: { label: '', figure: (count) => countText(count, 'prompt token') },
    completion_tokens: { label: '', figure: (count) => countText(count, 'answer token') },
    total_tokens: { label: '', figure: (count) => `${countText(count, 'token')} in all` },
  } satisfies Record<string, Shown>),
)

/**
 * Writes one line for each member, in the original order. A list has one more line for each item.
 * An unknown member keeps its own name.
 */
export function describeMembers(members: Facts): string {
  const entries = Object.entries(members).map(
    ([name, value]) => [labelOf(name), name, value] as const,
  )
  const width = Math.max(0, ...entries.map(([label]) => label.length))
  const lines = entries.flatMap(([label, name, value]) => {
    if (!Array.isArray(value)) return [`${label.padEnd(width)}  ${describeValue(name, value)}`]
    const items = value.map((item) => `  ${describeItem(item)}`)
    return [`${label.padEnd(width)}  ${describeValue(name, value.length)}`, ...items]
  })
  return lines.map((line) => `${line}\n`).join('')
}

export function describeNodes(nodes: readonly ListedNode[]): string {
  return textTable(TITLES, nodes.map(toRow))
}

const TITLES = ['NAME', 'ID', 'CONNECTED', 'STATE', 'SERVED', 'LAST 24 HOURS', 'MODELS']

function toRow(node: ListedNode): readonly string[] {
  const { is_connected: isConnected, run_duration_seconds: seconds } = node
  return [
    node.name_alias,
    node.node_id,
    isConnected ? `for ${lengthText(seconds ?? 0)}` : 'no',
    node.is_archived ? 'Archived' : (node.status ?? '-'),
    describeValue('requests_served', node.requests_served),
    describeValue('requests_served_day', node.requests_served_day),
    modelsOf(node) || '-',
  ]
}

/** Returns the models that the node serves now, or else the node's measured speed. */
function modelsOf({ models, benchmark_tokens_per_second: speed }: ListedNode): string {
  if (models && models.length > 0)
    return models
      .map(({ model_name: model, tokens_per_second: own }) => withSpeed(model, own))
      .join(', ')
  return typeof speed === 'number' ? `none now; measured at ${speedText(speed)}` : ''
}

/** Returns a text such as `model-a (84.5 tokens/s)`, or only the model without a speed. */
export function withSpeed(model: string, tokensPerSecond: number | null | undefined): string {
  return typeof tokensPerSecond === 'number' ? `${model} (${speedText(tokensPerSecond)})` : model
}

function labelOf(name: string): string {
  return MEMBERS.get(name)?.label || printable(name)
}

function describeValue(name: string, value: unknown): string {
  if (value === null || value === undefined) return '-'
  if (typeof value === 'number') return MEMBERS.get(name)?.figure?.(value) ?? String(value)
  return printable(typeof value === 'string' ? value : JSON.stringify(value))
}

function describeItem(item: unknown): string {
  if (typeof item !== 'object' || item === null) return printable(JSON.stringify(item))
  return Object.entries(item)
    .map(([name, value]) =>
      MEMBERS.has(name)
        ? describeValue(name, value)
        : `${printable(name)} ${describeValue(name, value)}`,
    )
    .join(', ')
}

function megabits(value: number): string {
  return `${decimals(value, 0)} Mbit/s`
}

function requests(count: number): string {
  return countText(count, 'request')
}
