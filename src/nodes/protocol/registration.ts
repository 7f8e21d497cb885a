import { z } from 'zod'
import { MODEL_LENGTH_MAX } from '#enclave/protocol/chat-form.ts'
import { boundedInteger } from '../../api/form-schema.ts'
import { boundedText, integerText, unixSeconds } from '../../api/schemas.ts'
import { NODE_ID_LENGTH_MAX } from './hello.ts'

/**
 * Registration of nodes over HTTP (interface, 2.7). The gateway checks requests with these schemas.
 * An agent reads answers with the types.
 */

/** The interface sets these limits for a changed name. A new name has the same limits. */
export const NODE_NAME_LENGTH_MIN = 3
export const NODE_NAME_LENGTH_MAX = 40

const HARDWARE_TEXT_LENGTH_MAX = 256
const VERSION_LENGTH_MAX = 64

/** Our own limits, above the values of any machine. Sums of such values stay exact. */
const HARDWARE_COUNT_MAX = 1_000_000
const HARDWARE_SIZE_MAX = 1_000_000_000_000
const NETWORK_SPEED_MAX = 1_000_000_000
export const TOKENS_PER_SECOND_MAX = 1_000_000

const nodeName = boundedText({ min: NODE_NAME_LENGTH_MIN, max: NODE_NAME_LENGTH_MAX })
const nodeId = boundedText({ min: 1, max: NODE_ID_LENGTH_MAX })
const modelName = boundedText({ min: 1, max: MODEL_LENGTH_MAX })
const hardwareText = boundedText({ min: 1, max: HARDWARE_TEXT_LENGTH_MAX })
const count = boundedInteger({ min: 0, max: HARDWARE_COUNT_MAX })
const size = boundedInteger({ min: 0, max: HARDWARE_SIZE_MAX })
const speed = z.number().min(0).max(NETWORK_SPEED_MAX)

/** Null: the machine lacks the part (a GPU), or the agent did not measure the value (a speed). */
const hardwareMembers = {
  gpu_model: hardwareText.nullable(),
  vram: size.nullable(),
  gpu_count: count.nullable(),
  cpu_model: hardwareText,
  cpu_count: count.nullable(),
  ram: size,
  power_limit: count.nullish(),
  network_download_speed: speed.nullable(),
  network_upload_speed: speed.nullable(),
  operating_system: hardwareText,
  version: boundedText({ min: 1, max: VERSION_LENGTH_MAX }).nullish(),
}

/**
 * A machine as its agent describes it: claims, not facts. Sizes are in MB, speeds in Mbps, power in
 * watts. `version` is the agent's version. Requests, code and columns use the same names.
 */
export type NodeHardware = {
  readonly [Name in keyof typeof hardwareMembers]: Exclude<
    z.output<(typeof hardwareMembers)[Name]>,
    undefined
  >
}

/** Picks the hardware members of a request or a row. A missing member becomes null. */
export function pickHardware(
  members: { readonly [Name in keyof NodeHardware]?: unknown },
): NodeHardware {
  const names = Object.keys(hardwareMembers) as (keyof NodeHardware)[]
  return Object.fromEntries(names.map((name) => [name, members[name] ?? null])) as NodeHardware
}

export const createNode = z.looseObject({ node_name: nodeName })

export const updateNode = z.looseObject({
  node_id: nodeId,
  node_name: nodeName.nullish(),
  is_archived: z.boolean().nullish(),
})

export const nodeInfo = z.looseObject({ node_id: nodeId, ...hardwareMembers })

export const nodeBenchmark = z.looseObject({
  node_id: nodeId,
  model_name: modelName,
  tokens_per_second: z.number().min(0).max(TOKENS_PER_SECOND_MAX),
})

export const nodeQuery = z.object({ node_id: nodeId })
export const benchmarkQuery = z.object({ node_id: nodeId, model: modelName })

const amount = z.number().min(0).nullable()

/** The hardware is null until the agent reports it. */
const described = {
  node_id: z.string(),
  name_alias: z.string(),
  status: z.string(),
  gpu_model: z.string().nullable(),
  vram: amount.describe('MB'),
  gpu_count: amount,
  cpu_model: z.string().nullable(),
  cpu_count: amount.describe('Cores'),
  ram: amount.describe('MB'),
  power_limit: amount.describe('Watts'),
  network_download_speed: amount.describe('Mbps'),
  network_upload_speed: amount.describe('Mbps'),
  operating_system: z.string().nullable(),
  version: z.string().nullable(),
  run_duration_seconds: z.int().min(0),
}

export const nodeInfoReply = z.strictObject({ ...described, node_created_at: unixSeconds })

export const nodeListReply = z.looseObject({
  nodes: z.array(
    z.strictObject({
      ...described,
      total_uptime_seconds: z.int().nullable(),
      requests_served: z.int(),
      requests_served_day: z.int(),
      benchmark_tokens_per_second: z.number().nullable(),
      is_archived: z.boolean(),
      node_created_at: unixSeconds,
      is_connected: z.boolean(),
      models: z
        .array(z.strictObject({ model_name: z.string(), tokens_per_second: z.number().nullable() }))
        .describe('What the node serves now; the speeds come from its own benchmarks'),
    }),
  ),
})

export type NodeListReply = z.output<typeof nodeListReply>

export const nodeStatsReply = z.strictObject({
  requests_served: z.int(),
  requests_served_day: z.int(),
  average_time_to_first_token: z.number().nullable().describe('Seconds'),
  benchmark_tokens_per_second: z.number().nullable(),
  benchmark_model_name: z.string().nullable(),
  benchmark_created_at: unixSeconds.nullable(),
  completed_inferences: z
    .array(
      z.strictObject({
        model_name: z.string(),
        prompt_tokens: z.int(),
        completion_tokens: z.int(),
        total_tokens: z.int(),
        created_at: unixSeconds,
      }),
    )
    .max(10),
})

export type NodeStatsReply = z.output<typeof nodeStatsReply>

const HISTORY_HOURS_DEFAULT = 24
/** Hourly figures are kept for 30 days. */
const HISTORY_HOURS_MAX = 30 * 24

/** Query for `hours` hours up to and including the current hour. */
export const nodeHistoryQuery = z.object({
  node_id: nodeId,
  hours: integerText({ min: 1, max: HISTORY_HOURS_MAX }).default(HISTORY_HOURS_DEFAULT),
})

export const nodeHistoryReply = z.strictObject({
  node_id: z.string(),
  since: unixSeconds.describe('Start of the first requested hour'),
  hours: z
    .array(
      z.strictObject({
        start: unixSeconds,
        requests: z.int(),
        prompt_tokens: z.int(),
        completion_tokens: z.int(),
        time_to_first_token: z
          .strictObject({ p50: z.number(), p95: z.number() })
          .nullable()
          .describe('Seconds, from the last 200 calls of the hour; null when no call was timed'),
      }),
    )
    .describe('Oldest first; hours without calls are left out'),
})
export type NodeHistoryReply = z.output<typeof nodeHistoryReply>

export const nodeBenchmarkReply = z.strictObject({
  node_id: z.string(),
  model_name: z.string(),
  tokens_per_second: z.number(),
})

export const networkStatsReply = z.strictObject({
  nodes_count: z.int(),
  connected_nodes_count: z.int(),
  network_throughput: z.string(),
  inference_count_day: z.int(),
  network_models_stats: z.array(z.strictObject({ model_name: z.string(), throughput: z.string() })),
})

export const createdNode = z.strictObject({ response: z.literal('OK'), node_id: z.string() })

export const updatedNode = z.strictObject({
  is_name_updated: z.boolean(),
  is_archival_status_updated: z.boolean(),
})

export const done = z.strictObject({ response: z.literal('OK') })
