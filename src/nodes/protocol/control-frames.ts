import { isJsonArray, isJsonObject, type Json, type JsonObject } from '#attestation/json/value.ts'

/**
 * Control frames have the form `{ protocol, data }`. Gateway and node both write and read them. A
 * malformed control frame from a node makes the gateway close the connection. A node ignores a
 * frame that it does not understand.
 */

const PROTOCOL_VERSION = '1.0'
const REQUEST = 1
const REPLY = 2
const RECONNECT = 3

/** Longest nonce, in answers that the gateway reads and in requests that a node answers. */
const NONCE_LENGTH_MAX = 64
const ECHOED_NONCE_LENGTH_MAX = 256

/** Maximum number of GPUs in a health answer. A longer list is malformed. */
export const GPUS_MAX = 64

/** Load of a machine, whole percent from 0 to 100: the deployed service takes no fractions. */
export type Load = {
  readonly cpuPercent: number
  readonly ramPercent: number
  readonly diskPercent: number
  readonly gpus: readonly {
    readonly gpuPercent: number
    readonly vramPercent: number
    /** Percent of the power limit. 0 when the driver reports no limit. */
    readonly powerPercent: number
  }[]
}

/**
 * The load that the node reports; it is not trusted. A value is null when the node sent no valid
 * percentage.
 */
export type NodeLoad = {
  readonly cpuPercent: number | null
  readonly ramPercent: number | null
  readonly diskPercent: number | null
  readonly gpus: number
}

export type GatewayControl =
  /**
   * The node answers with a `pong` that has the same nonce. The protocol requires `rttMs` and the
   * members after it, which describe earlier pings.
   */
  | {
      readonly kind: 'ping'
      readonly nonce: string
      /** Round trip in milliseconds. 0 before the first answer. */
      readonly rttMs: number
      readonly pingStreak: number
      readonly missStreak: number
    }
  /** Asks a node without runs to close the connection with 1000 and to connect again. */
  | { readonly kind: 'reconnect'; readonly nonce: string }
  | { readonly kind: 'health'; readonly nonce: string }
  /**
   * Our own extension (README): reports that the caller of a run has left. Only a node that
   * announced `cancel` gets this frame.
   */
  | { readonly kind: 'cancel'; readonly requestId: string }

type NodeControl =
  /**
   * `roundTripMs` is the newest round trip that the node itself measured. Null before the first
   * measurement.
   */
  | { readonly kind: 'pong'; readonly nonce: string; readonly roundTripMs: number | null }
  | { readonly kind: 'health'; readonly nonce: string; readonly load: Load }
  /** The node takes no new runs, and closes when its runs are done. */
  | { readonly kind: 'drain' }

export function encodeGatewayControl(nodeId: string, control: GatewayControl): string {
  switch (control.kind) {
    case 'ping': {
      const { nonce, rttMs, pingStreak, missStreak } = control
      const figures = { rtt: Math.round(rttMs), ping_streak: pingStreak, miss_streak: missStreak }
      return encode('ping-pong', REQUEST, { node_id: nodeId, nonce, ...figures })
    }
    case 'reconnect':
      return encode('ping-pong', RECONNECT, {
        node_id: nodeId,
        nonce: control.nonce,
        reconnect_request: true,
      })
    case 'health':
      return encode('health-check', REQUEST, { node_id: nodeId, nonce: control.nonce })
    case 'cancel':
      return encode('cancel', REQUEST, { node_id: nodeId, request_id: control.requestId })
  }
}

export function encodeNodeControl(nodeId: string, control: NodeControl): string {
  switch (control.kind) {
    case 'pong': {
      const { nonce, roundTripMs } = control
      const time = roundTripMs === null ? null : Math.round(roundTripMs)
      return encode('ping-pong', REPLY, { node_id: nodeId, nonce, api_ping_time: [time] })
    }
    case 'health': {
      const { nonce, load } = control
      return encode('health-check', REPLY, {
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
    case 'drain':
      return encode('drain', REQUEST, { node_id: nodeId })
  }
}

function encode(protocol: string, type: number, members: JsonObject): string {
  return JSON.stringify({
    protocol,
    data: { protocol_version: PROTOCOL_VERSION, message_type: type, ...members },
  })
}

/** A gateway's control frame with only the members that nodes use. */
export type AskedControl =
  | { readonly kind: 'ping' | 'health'; readonly nonce: string }
  | { readonly kind: 'reconnect' }
  | { readonly kind: 'cancel'; readonly requestId: string }

/**
 * Reads the request in a control frame to the node `nodeId`. Null without a valid request: an
 * unknown protocol, version or type, a member of the wrong type, or another node's id.
 */
export function parseGatewayControl(
  protocol: string,
  data: JsonObject,
  nodeId: string,
): AskedControl | null {
  const { protocol_version: version, message_type: type, nonce, request_id: requestId } = data
  if (data.node_id !== nodeId || version !== PROTOCOL_VERSION) return null
  if (protocol === 'cancel')
    return type === REQUEST && typeof requestId === 'string' ? { kind: 'cancel', requestId } : null
  if (typeof nonce !== 'string' || nonce.length > ECHOED_NONCE_LENGTH_MAX) return null
  if (protocol === 'health-check' && type === REQUEST) return { kind: 'health', nonce }
  if (protocol !== 'ping-pong') return null
  if (type === REQUEST) return { kind: 'ping', nonce }
  return type === RECONNECT && data.reconnect_request === true ? { kind: 'reconnect' } : null
}

/**
 * A control frame from a node, as the gateway reads it. `other`: the frame has another node's id,
 * and the gateway ignores the frame. `malformed`: the gateway closes the connection with 1002.
 */
type ReceivedControl =
  | { readonly kind: 'pong'; readonly nonce: string }
  | { readonly kind: 'health'; readonly nonce: string; readonly load: NodeLoad }
  | { readonly kind: 'drain' }
  | { readonly kind: 'other' }
  | { readonly kind: 'malformed'; readonly reason: string }

/** The frame is attacker-controlled. */
export function parseNodeControl(
  protocol: string,
  data: JsonObject,
  nodeId: string,
): ReceivedControl {
  const parse = PARSERS.get(protocol)
  if (parse === undefined) return malformed('Unknown protocol')
  if (data.protocol_version !== PROTOCOL_VERSION) return malformed('Unknown protocol version')
  if (typeof data.node_id !== 'string') return malformed('Expected a node_id')
  if (data.node_id !== nodeId) return { kind: 'other' }
  return parse(data)
}

const PARSERS: ReadonlyMap<string, (data: JsonObject) => ReceivedControl> = new Map([
  ['ping-pong', parsePong],
  ['health-check', parseHealth],
  ['drain', parseDrain],
])

function parsePong({
  message_type: type,
  nonce,
  api_ping_time: times,
}: JsonObject): ReceivedControl {
  const isPong = type === REPLY && isNonce(nonce) && isPingTimes(times)
  return isPong ? { kind: 'pong', nonce } : malformed('Expected a PONG')
}

function isNonce(nonce: Json | undefined): nonce is string {
  return typeof nonce === 'string' && nonce.length <= NONCE_LENGTH_MAX
}

/**
 * Checks only the form of the times, because the gateway does not use them. The public client sends
 * the times of all rounds since the last PING, even of hours without a connection.
 */
function isPingTimes(times: Json | undefined): boolean {
  if (times === undefined || times === null) return true
  return isJsonArray(times) && times.every((time) => time === null || typeof time === 'number')
}

function parseHealth({ message_type: type, nonce, gpus, ...load }: JsonObject): ReceivedControl {
  const areGpus = isJsonArray(gpus) && gpus.length <= GPUS_MAX && gpus.every(isJsonObject)
  if (type !== REPLY || !isNonce(nonce) || !areGpus) return malformed('Expected a health answer')
  return {
    kind: 'health',
    nonce,
    load: {
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

function parseDrain({ message_type: type }: JsonObject): ReceivedControl {
  return type === REQUEST ? { kind: 'drain' } : malformed('Expected a drain announcement')
}

function malformed(reason: string): ReceivedControl {
  return { kind: 'malformed', reason }
}
