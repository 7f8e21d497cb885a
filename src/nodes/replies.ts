import { z } from 'zod'
import { unixSeconds } from '../verified/record-replies.ts'

const amount = z.number().min(0).nullable()

const machine = {
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
}

const named = { node_id: z.string(), name_alias: z.string(), status: z.string() }

/** `GET /v1/node/info` (interface, 2.7). */
export const nodeInfoReply = z.strictObject({
  ...named,
  ...machine,
  run_duration_seconds: z.int().min(0),
  node_created_at: unixSeconds,
})

/** The account's nodes. */
export const nodeListReply = z.looseObject({
  nodes: z.array(
    z.strictObject({
      ...named,
      ...machine,
      run_duration_seconds: z.int().min(0),
      total_uptime_seconds: z.int().nullable(),
      requests_served: z.int(),
      requests_served_day: z.int(),
      benchmark_tokens_per_second: z.number().nullable(),
      is_archived: z.boolean(),
      node_created_at: unixSeconds,
    }),
  ),
})

/** `GET /v1/node/stats` (interface, 2.7). */
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

export const nodeBenchmarkReply = z.strictObject({
  node_id: z.string(),
  model_name: z.string(),
  tokens_per_second: z.number(),
})

/** `GET /v1/network/stats`. */
export const networkStatsReply = z.strictObject({
  nodes_count: z.int(),
  connected_nodes_count: z.int(),
  network_throughput: z.string(),
  inference_count_day: z.int(),
  network_models_stats: z.array(z.strictObject({ model_name: z.string(), throughput: z.string() })),
})
