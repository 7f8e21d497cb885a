import type { NodeStats } from './inferences-store.ts'
import { statusText } from './node-state.ts'
import type { NodeBenchmark, StoredNode } from './nodes-store.ts'

/** A node for the list of its account. */
export type ListedNode = {
  readonly node: StoredNode
  readonly benchmark: NodeBenchmark | null
  readonly requestsServedDay: number
  /** Unix seconds. */
  readonly now: number
}

/** Node info response (interface, 2.7). `now` is Unix seconds. */
export function nodeInfoReply(node: StoredNode, now: number) {
  return {
    node_id: node.nodeId,
    ...machineMembers(node),
    name_alias: node.name,
    status: statusText(node.state),
    run_duration_seconds: runDurationSeconds(node, now),
    node_created_at: node.createdAt,
  }
}

/** Node list item (interface, 2.7). */
export function nodeListItem({ node, benchmark, requestsServedDay, now }: ListedNode) {
  const runSeconds = runDurationSeconds(node, now)
  return {
    node_id: node.nodeId,
    ...machineMembers(node),
    name_alias: node.name,
    status: statusText(node.state),
    run_duration_seconds: runSeconds,
    total_uptime_seconds: node.totalUptimeSeconds + runSeconds,
    requests_served: node.requestsServed,
    requests_served_day: requestsServedDay,
    benchmark_tokens_per_second: benchmark?.tokensPerSecond ?? null,
    is_archived: node.isArchived,
    node_created_at: node.createdAt,
  }
}

/** Node stats response (interface, 2.7); the average is in seconds. */
export function nodeStatsReply({
  node,
  benchmark,
  stats,
}: {
  readonly node: StoredNode
  readonly benchmark: NodeBenchmark | null
  readonly stats: NodeStats
}) {
  const averageMs = stats.averageTimeToFirstTokenMs
  return {
    requests_served: node.requestsServed,
    requests_served_day: stats.requestsServedDay,
    average_time_to_first_token: averageMs === null ? null : averageMs / 1000,
    benchmark_tokens_per_second: benchmark?.tokensPerSecond ?? null,
    benchmark_model_name: benchmark?.model ?? null,
    benchmark_created_at: benchmark?.createdAt ?? null,
    completed_inferences: stats.completed.map((inference) => ({
      model_name: inference.model,
      prompt_tokens: inference.promptTokens,
      completion_tokens: inference.completionTokens,
      total_tokens: inference.totalTokens,
      created_at: inference.createdAt,
    })),
  }
}

/** Node benchmark response (interface, 2.7). */
export function nodeBenchmarkReply({ nodeId, model, tokensPerSecond }: NodeBenchmark) {
  return { node_id: nodeId, model_name: model, tokens_per_second: tokensPerSecond }
}

/** What the node's agent reported; all null before it did. */
function machineMembers({ hardware }: StoredNode) {
  return {
    gpu_model: hardware?.gpuModel ?? null,
    vram: hardware?.vram ?? null,
    gpu_count: hardware?.gpuCount ?? null,
    cpu_model: hardware?.cpuModel ?? null,
    cpu_count: hardware?.cpuCount ?? null,
    ram: hardware?.ram ?? null,
    power_limit: hardware?.powerLimit ?? null,
    network_download_speed: hardware?.networkDownloadSpeed ?? null,
    network_upload_speed: hardware?.networkUploadSpeed ?? null,
    operating_system: hardware?.operatingSystem ?? null,
    version: hardware?.version ?? null,
  }
}

/** 0 while it is not connected, and for a connection that the clock places in the future. */
function runDurationSeconds({ connectedSince }: StoredNode, now: number): number {
  return connectedSince === null ? 0 : Math.max(0, now - connectedSince)
}
