import { isJsonArray, isJsonObject, type Json, type JsonObject } from '../../attestation/json/value.ts'

/** Version of every control protocol here. */
export const PROTOCOL_VERSION = '1.0'

/** Most GPUs whose load is read from one health answer. */
export const GPUS_MAX = 64

/** What the gateway's last pings gave; sent along because the protocol asks for it. */
export type PingFigures = {
  /** Milliseconds; 0 before the first answer. */
  readonly rttMs: number
  readonly pingStreak: number
  readonly missStreak: number
}

/** A node's own statement of its load, percent from 0 to 100; null where it gave no such number. Not to be trusted. */
export type NodeHealth = {
  readonly cpuPercent: number | null
  readonly ramPercent: number | null
  readonly diskPercent: number | null
  readonly gpus: number
}

/** A control frame from a node. `other`: for another node id, to be ignored. `malformed`: close with 1002. */
export type ControlAnswer =
  | { readonly kind: 'pong'; readonly nonce: string }
  | { readonly kind: 'health'; readonly nonce: string; readonly health: NodeHealth }
  | { readonly kind: 'drain' }
  | { readonly kind: 'other' }
  | { readonly kind: 'malformed'; readonly reason: string }

/** PING: answered by a PONG with the same nonce. */
export function pingFrame(nodeId: string, nonce: string, figures: PingFigures): string {
  return encode('ping-pong', {
    message_type: 1,
    node_id: nodeId,
    nonce,
    rtt: Math.round(figures.rttMs),
    ping_streak: figures.pingStreak,
    miss_streak: figures.missStreak,
  })
}

/** RECONNECT: asks a node without runs to close with 1000 and dial again. */
export function reconnectFrame(nodeId: string, nonce: string): string {
  return encode('ping-pong', { message_type: 3, node_id: nodeId, nonce, reconnect_request: true })
}

/** Asks for a health answer. */
export function healthFrame(nodeId: string, nonce: string): string {
  return encode('health-check', { message_type: 1, node_id: nodeId, nonce })
}

/** Ours alone (README): the caller of a run has left. Only for nodes that announced `cancel`. */
export function cancelFrame(nodeId: string, requestId: string): string {
  return encode('cancel', { message_type: 1, node_id: nodeId, request_id: requestId })
}

function encode(protocol: string, data: Readonly<Record<string, Json>>): string {
  return JSON.stringify({ protocol, data: { protocol_version: PROTOCOL_VERSION, ...data } })
}

/** Parses a control frame of the node `nodeId`. Attacker-controlled. */
export function parseControl(protocol: string, data: JsonObject, nodeId: string): ControlAnswer {
  const parse = PARSERS.get(protocol)
  if (parse === undefined) return malformed('Unknown protocol')
  if (data.protocol_version !== PROTOCOL_VERSION) return malformed('Unknown protocol version')
  if (typeof data.node_id !== 'string') return malformed('Expected a node_id')
  if (data.node_id !== nodeId) return { kind: 'other' }
  return parse(data)
}

const PARSERS: ReadonlyMap<string, (data: JsonObject) => ControlAnswer> = new Map([
  ['ping-pong', parsePong],
  ['health-check', parseHealth],
  ['drain', parseDrain],
])

const NONCE_LENGTH_MAX = 64

function parsePong({ message_type: type, nonce, api_ping_time: times }: JsonObject): ControlAnswer {
  const isPong = type === 2 && isNonce(nonce) && isPingTimes(times)
  return isPong ? { kind: 'pong', nonce } : malformed('Expected a PONG')
}

function isNonce(nonce: Json | undefined): nonce is string {
  return typeof nonce === 'string' && nonce.length <= NONCE_LENGTH_MAX
}

/**
 * Not used. The public client sends one for each of its own rounds since the last PING, also of
 * hours that it was away.
 */
function isPingTimes(times: Json | undefined): boolean {
  if (times === undefined || times === null) return true
  return isJsonArray(times) && times.every((time) => time === null || typeof time === 'number')
}

function parseHealth({ message_type: type, nonce, gpus, ...load }: JsonObject): ControlAnswer {
  const areGpus = isJsonArray(gpus) && gpus.length <= GPUS_MAX && gpus.every(isJsonObject)
  if (type !== 2 || !isNonce(nonce) || !areGpus) return malformed('Expected a health answer')
  return {
    kind: 'health',
    nonce,
    health: {
      cpuPercent: percentOf(load.cpu_percent),
      ramPercent: percentOf(load.ram_percent),
      diskPercent: percentOf(load.disk_percent),
      gpus: gpus.length,
    },
  }
}

function percentOf(value: Json | undefined): number | null {
  return typeof value === 'number' && value >= 0 && value <= 100 ? value : null
}

function parseDrain({ message_type: type }: JsonObject): ControlAnswer {
  return type === 1 ? { kind: 'drain' } : malformed('Expected a drain announcement')
}

function malformed(reason: string): ControlAnswer {
  return { kind: 'malformed', reason }
}
