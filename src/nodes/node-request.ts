import { z } from 'zod'
import { requiredInteger } from '../api/bounded-integer.ts'
import { boundedText } from '../api/bounded-text.ts'
import { validateBody } from '../api/json-body.ts'
import { type QueryParameters, validateParameters } from '../api/parameters.ts'
import { MODEL_LENGTH_MAX } from '../chat/chat-request.ts'

/** Interface facts: what a name may be when it is changed. A new node's is bounded alike. */
export const NODE_NAME_LENGTH_MIN = 3
export const NODE_NAME_LENGTH_MAX = 40

/** Not bounded by the interface. A node id has at most 44 characters; more is let through, and is unknown. */
export const NODE_ID_LENGTH_MAX = 128
export const HARDWARE_TEXT_LENGTH_MAX = 256
export const VERSION_LENGTH_MAX = 64

/** Not bounded by the interface: above any machine's, and their sums stay exact. Sizes in MB, power in watts, speeds in Mbps. */
export const HARDWARE_COUNT_MAX = 1_000_000
export const HARDWARE_SIZE_MAX = 1_000_000_000_000
export const NETWORK_SPEED_MAX = 1_000_000_000
export const TOKENS_PER_SECOND_MAX = 1_000_000

export type CreateNodeRequest = { readonly name: string }

/** What is null stays as it is. */
export type UpdateNodeRequest = {
  readonly nodeId: string
  readonly name: string | null
  readonly isArchived: boolean | null
}

/** What an agent says of its machine; see NodeHardware for the units. */
export type NodeInfoRequest = {
  readonly nodeId: string
  readonly hardware: {
    readonly operatingSystem: string
    readonly cpuModel: string
    readonly cpuCount: number | null
    readonly ram: number
    readonly gpuModel: string | null
    readonly gpuCount: number | null
    readonly vram: number | null
    readonly powerLimit: number | null
    readonly networkDownloadSpeed: number | null
    readonly networkUploadSpeed: number | null
    readonly version: string | null
  }
}

export type NodeBenchmarkRequest = {
  readonly nodeId: string
  readonly model: string
  readonly tokensPerSecond: number
}

/** Body of `POST /v1/dashboard/node`. This and all below throw ValidationError; unknown members pass. */
export function parseCreateNode(body: Uint8Array): CreateNodeRequest {
  return { name: validateBody(createNode, body).node_name }
}

/** Body of `PUT /v1/dashboard/node`. */
export function parseUpdateNode(body: Uint8Array): UpdateNodeRequest {
  const { node_id: nodeId, node_name: name, is_archived: isArchived } = validateBody(updateNode, body)
  return { nodeId, name: name ?? null, isArchived: isArchived ?? null }
}

/** Body of `POST /v1/node/info`. What a machine may lack (a GPU, a measured speed) is there, and null. */
export function parseNodeInfo(body: Uint8Array): NodeInfoRequest {
  const info = validateBody(nodeInfo, body)
  return {
    nodeId: info.node_id,
    hardware: {
      operatingSystem: info.operating_system,
      cpuModel: info.cpu_model,
      cpuCount: info.cpu_count,
      ram: info.ram,
      gpuModel: info.gpu_model,
      gpuCount: info.gpu_count,
      vram: info.vram,
      powerLimit: info.power_limit ?? null,
      networkDownloadSpeed: info.network_download_speed,
      networkUploadSpeed: info.network_upload_speed,
      version: info.version ?? null,
    },
  }
}

/** Body of `POST /v1/node/benchmark`. */
export function parseNodeBenchmark(body: Uint8Array): NodeBenchmarkRequest {
  const benchmark = validateBody(nodeBenchmark, body)
  return {
    nodeId: benchmark.node_id,
    model: benchmark.model_name,
    tokensPerSecond: benchmark.tokens_per_second,
  }
}

/** Query of `GET /v1/node/info` and `GET /v1/node/stats`. */
export function parseNodeQuery(parameters: QueryParameters): { readonly nodeId: string } {
  return { nodeId: validateParameters('query', nodeQuery, parameters).node_id }
}

/** Query of `GET /v1/node/benchmark`. */
export function parseBenchmarkQuery(parameters: QueryParameters): {
  readonly nodeId: string
  readonly model: string
} {
  const { node_id: nodeId, model } = validateParameters('query', benchmarkQuery, parameters)
  return { nodeId, model }
}

const nodeName = boundedText({ min: NODE_NAME_LENGTH_MIN, max: NODE_NAME_LENGTH_MAX })
const nodeId = boundedText({ min: 1, max: NODE_ID_LENGTH_MAX })
const modelName = boundedText({ min: 1, max: MODEL_LENGTH_MAX })
const hardwareText = boundedText({ min: 1, max: HARDWARE_TEXT_LENGTH_MAX })
const count = requiredInteger({ min: 0, max: HARDWARE_COUNT_MAX })
const size = requiredInteger({ min: 0, max: HARDWARE_SIZE_MAX })
const speed = z.number().min(0).max(NETWORK_SPEED_MAX)

/** Body of `POST /v1/dashboard/node`. */
export const createNode = z.looseObject({ node_name: nodeName })

/** Body of `PUT /v1/dashboard/node`. */
export const updateNode = z.looseObject({
  node_id: nodeId,
  node_name: nodeName.nullish(),
  is_archived: z.boolean().nullish(),
})

/** Body of `POST /v1/node/info`. */
export const nodeInfo = z.looseObject({
  node_id: nodeId,
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
})

/** Body of `POST /v1/node/benchmark`. */
export const nodeBenchmark = z.looseObject({
  node_id: nodeId,
  model_name: modelName,
  tokens_per_second: z.number().min(0).max(TOKENS_PER_SECOND_MAX),
})

/** Query that names a node. */
export const nodeQuery = z.object({ node_id: nodeId })
/** Query that names a node and a model. */
export const benchmarkQuery = z.object({ node_id: nodeId, model: modelName })
