import { WebSocket } from 'ws'
import type { Logger } from '../observability/logger.ts'
import type { Backend } from './backend.ts'
import { encodeDrain, NODE_FEATURES } from './control-frames.ts'
import { TAKEN_FRAME_BYTES_MAX } from './frames.ts'
import { watchLiveness } from './liveness.ts'
import type { Load } from './load.ts'
import type { NodeType } from './node-type.ts'
import { createResponder } from './responder.ts'
import { createRuns, type RunWatcher } from './runs.ts'
import { createSender } from './sender.ts'

/** Timings of a connection, milliseconds. */
export type ConnectionTimings = {
  readonly handshakeTimeoutMs: number
  /** Pause between two pings of the agent; a gateway from which nothing came in one is gone. */
  readonly pingMs: number
  /** How long a close is waited for. */
  readonly closeTimeoutMs: number
}

/** Well within the minute or two after which proxies drop a silent connection. */
export const CONNECTION_TIMINGS: ConnectionTimings = {
  handshakeTimeoutMs: 10_000,
  pingMs: 30_000,
  closeTimeoutMs: 2_000,
}

/** How a connection ended. */
export type ConnectionEnd = {
  /** WebSocket close code; 1006 when there was none. */
  readonly code: number
  /** The gateway's words, or the fault's; attacker-controlled. */
  readonly reason: string
  /** How long it was open, milliseconds; null when it never was. */
  readonly openMs: number | null
  /** The gateway asked for a new one. */
  readonly isRequested: boolean
}

/** One connection to the gateway. */
export type Connection = {
  /** Never rejects. */
  readonly closed: Promise<ConnectionEnd>
  /** Takes nothing new, finishes what runs within `graceMs`, closes, and resolves when it is closed. */
  drain(graceMs: number): Promise<void>
  status(): { readonly isOpen: boolean; readonly running: number }
}

/** What a connection needs. */
export type ConnectionOptions = {
  /** The gateway's, `http(s)://host[:port][/path]`. */
  readonly gatewayUrl: string
  readonly apiKey: string
  readonly nodeId: string
  readonly nodeType: NodeType
  /** 1 to MODELS_MAX; one of a node that makes images. */
  readonly models: readonly string[]
  readonly backend: Pick<Backend, 'streamChat' | 'makeImages'>
  readonly readLoad: () => Promise<Load>
  readonly timings: ConnectionTimings
  /** With it, the gateway is asked to name the trace of each run. */
  readonly watchRun?: RunWatcher | undefined
  /** Milliseconds of a clock that only goes forward. */
  readonly now: () => number
  readonly log: Logger
  readonly onOpen: () => void
}

/** Dials the gateway and answers what it asks until the connection ends. */
export function openConnection(options: ConnectionOptions): Connection {
  const { nodeId, nodeType, models, backend, readLoad, timings, now, watchRun, log } = options
  const socket = dial(options)
  const sender = createSender(socket)
  const liveness = watchLiveness(socket, timings.pingMs, now)
  const state = {
    openedAt: null as number | null,
    fault: null as string | null,
    isReconnecting: false,
    isDraining: false,
  }
  const closeWhenIdle = () => {
    if ((state.isReconnecting || state.isDraining) && runs.count === 0) socket.close(1000)
  }
  const runs = createRuns({
    nodeType,
    models,
    backend,
    send: sender.send,
    onIdle: closeWhenIdle,
    watchRun,
    log,
  })
  const { roundTripMs } = liveness
  const onReconnect = () => {
    state.isReconnecting = true
    closeWhenIdle()
  }
  const respond = createResponder({ nodeId, runs, sender, readLoad, roundTripMs, onReconnect, log })

  socket.on('upgrade', (response) => sender.attach(response.socket))
  socket.on('open', () => {
    state.openedAt = now()
    liveness.start()
    options.onOpen()
  })
  // 'close' follows; without a listener the process would end.
  socket.on('error', (error) => {
    state.fault = error.message
  })
  socket.on('message', (data: Buffer, isBinary: boolean) => {
    if (!isBinary) respond(data.toString('utf8'))
  })
  const closed = new Promise<ConnectionEnd>((resolve) => {
    socket.once('close', (code, reason) => {
      liveness.stop()
      runs.abort('lost')
      const openMs = state.openedAt === null ? null : now() - state.openedAt
      resolve({ code, reason: state.fault ?? reason.toString(), openMs, isRequested: state.isReconnecting })
    })
  })
  return {
    closed,
    drain: async (graceMs) => {
      runs.close()
      state.isDraining = true
      void sender.send(encodeDrain(nodeId))
      closeWhenIdle()
      const grace = setTimeout(() => runs.abort('stopped'), graceMs)
      const end = setTimeout(() => socket.terminate(), graceMs + timings.closeTimeoutMs)
      await closed
      clearTimeout(grace)
      clearTimeout(end)
    },
    status: () => ({ isOpen: socket.readyState === WebSocket.OPEN, running: runs.count }),
  }
}

function dial({
  gatewayUrl,
  apiKey,
  nodeId,
  nodeType,
  models,
  timings,
  watchRun,
}: {
  readonly gatewayUrl: string
  readonly apiKey: string
  readonly nodeId: string
  readonly nodeType: NodeType
  readonly models: readonly string[]
  readonly timings: ConnectionTimings
  readonly watchRun?: RunWatcher | undefined
}): WebSocket {
  const [model = '', ...others] = models
  return new WebSocket(socketUrl(gatewayUrl), {
    headers: {
      authorization: `Bearer ${apiKey}`,
      'node-id': nodeId,
      model,
      'model-type': nodeType,
      'node-features': [...NODE_FEATURES, ...(watchRun === undefined ? [] : ['trace'])].join(', '),
      ...(others.length === 0 ? {} : { 'node-models': others.join(', ') }),
    },
    handshakeTimeout: timings.handshakeTimeoutMs,
    maxPayload: TAKEN_FRAME_BYTES_MAX,
    // Chunks are too small to gain by it, and each connection would keep a compressor.
    perMessageDeflate: false,
    followRedirects: false,
  })
}

/** Gives the address of the node socket of a gateway. */
function socketUrl(gatewayUrl: string): URL {
  const url = new URL(gatewayUrl)
  url.protocol = url.protocol === 'https:' ? 'wss:' : 'ws:'
  url.pathname = `${url.pathname.replace(/\/+$/, '')}/v1/node/ws`
  return url
}
