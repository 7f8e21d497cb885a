import { type JsonObject, memberOf } from '../../attestation/json/value.ts'
import { encodeControl } from './frames.ts'
import type { Load } from './load.ts'

/** What a control frame asks of this node. */
export type ControlRequest =
  | { readonly kind: 'ping'; readonly nonce: string }
  | { readonly kind: 'reconnect' }
  | { readonly kind: 'health'; readonly nonce: string }
  | { readonly kind: 'cancel'; readonly requestId: string }

const VERSION = '1.0'
const PING_PONG = 'ping-pong'
const HEALTH_CHECK = 'health-check'
const REQUEST = 1
const REPLY = 2
const RECONNECT = 3
/** Longest nonce that is echoed, characters. */
export const NONCE_LENGTH_MAX = 256

/** Features that the agent announces in the handshake (src/nodes/README.md). */
export const NODE_FEATURES = ['cancel', 'drain', 'extra-members', 'large-frames'] as const

/**
 * Gives what a control frame asks, or null when it asks nothing of this node: an unknown protocol, version or type, a
 * member of the wrong kind, or another node's id.
 */
export function parseControl(protocol: string, data: JsonObject, nodeId: string): ControlRequest | null {
  if (memberOf(data, 'node_id') !== nodeId || memberOf(data, 'protocol_version') !== VERSION) return null
  const type = memberOf(data, 'message_type')
  const requestId = memberOf(data, 'request_id')
  if (protocol === 'cancel')
    return type === REQUEST && typeof requestId === 'string' ? { kind: 'cancel', requestId } : null
  const nonce = memberOf(data, 'nonce')
  if (typeof nonce !== 'string' || nonce.length > NONCE_LENGTH_MAX) return null
  if (protocol === HEALTH_CHECK && type === REQUEST) return { kind: 'health', nonce }
  if (protocol !== PING_PONG) return null
  if (type === REQUEST) return { kind: 'ping', nonce }
  return type === RECONNECT && memberOf(data, 'reconnect_request') === true ? { kind: 'reconnect' } : null
}

/** Gives the answer to a ping; `roundTripMs` is the agent's own newest measurement, null before the first. */
export function encodePong(nodeId: string, nonce: string, roundTripMs: number | null): string {
  const time = roundTripMs === null ? null : Math.round(roundTripMs)
  return encodeControl(PING_PONG, {
    protocol_version: VERSION,
    message_type: REPLY,
    node_id: nodeId,
    nonce,
    api_ping_time: [time],
  })
}

/** Gives the answer to a health check. */
export function encodeHealth(nodeId: string, nonce: string, load: Load): string {
  return encodeControl(HEALTH_CHECK, {
    protocol_version: VERSION,
    message_type: REPLY,
    node_id: nodeId,
    nonce,
    cpu_percent: load.cpuPercent,
    ram_percent: load.ramPercent,
    disk_percent: load.diskPercent,
    gpus: load.gpus.map(({ gpuPercent, vramPercent, powerPercent }) => ({
      gpu_percent: gpuPercent,
      vram_percent: vramPercent,
      power_percent: powerPercent,
    })),
  })
}

/** Gives the announcement that this node takes nothing new and closes when its runs are done. */
export function encodeDrain(nodeId: string): string {
  return encodeControl('drain', { protocol_version: VERSION, message_type: REQUEST, node_id: nodeId })
}
