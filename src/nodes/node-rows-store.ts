import type { Selectable } from 'kysely'
import type { Tables } from '../storage/tables.ts'
import { isNodeState } from './node-state.ts'
import type { NodeHardware, StoredNode } from './nodes-store.ts'

type NodeRow = Selectable<Tables['nodes']>

/** Gives the node of a row. Throws TypeError for a state that this version does not know. */
export function toNode(row: NodeRow): StoredNode {
  if (row.state !== null && !isNodeState(row.state))
    throw new TypeError(`expected a node state, got ${row.state}`)
  return {
    nodeId: row.node_id,
    accountId: row.account_id,
    name: row.name,
    createdAt: row.created_at,
    isArchived: row.is_archived,
    state: row.state,
    hardware: toHardware(row),
    connectedSince: row.connected_since,
    lastSeenAt: row.last_seen_at,
    models: row.models,
    totalUptimeSeconds: row.total_uptime_seconds,
    requestsServed: row.requests_served,
  }
}

/** Gives the columns that hold a node's hardware. */
export function hardwareColumns(hardware: NodeHardware) {
  return {
    operating_system: hardware.operatingSystem,
    cpu_model: hardware.cpuModel,
    cpu_count: hardware.cpuCount,
    ram: hardware.ram,
    gpu_model: hardware.gpuModel,
    gpu_count: hardware.gpuCount,
    vram: hardware.vram,
    power_limit: hardware.powerLimit,
    network_download_speed: hardware.networkDownloadSpeed,
    network_upload_speed: hardware.networkUploadSpeed,
    version: hardware.version,
  } as const
}

function toHardware(row: NodeRow): NodeHardware | null {
  const { operating_system: operatingSystem, cpu_model: cpuModel, ram } = row
  if (operatingSystem === null || cpuModel === null || ram === null) return null
  return {
    operatingSystem,
    cpuModel,
    cpuCount: row.cpu_count,
    ram,
    gpuModel: row.gpu_model,
    gpuCount: row.gpu_count,
    vram: row.vram,
    powerLimit: row.power_limit,
    networkDownloadSpeed: row.network_download_speed,
    networkUploadSpeed: row.network_upload_speed,
    version: row.version,
  }
}
