import type { Socket } from 'node:net'
import { WebSocket } from 'ws'
import {
  type AskedControl,
  encodeNodeControl,
  type Load,
  parseGatewayControl,
} from '../nodes/protocol/control-frames.ts'
import type { NodeDialect } from '../nodes/protocol/dialects.ts'
import {
  decodeGatewayFrame,
  encodeFailure,
  encodeImageFailure,
  LARGE_FRAME_BYTES_MAX,
} from '../nodes/protocol/frames.ts'
import { helloHeaders, type NodeFeature, type NodeType } from '../nodes/protocol/hello.ts'
import type { Logger } from '../observability/logger.ts'
import { singleFlight } from '../runtime/single-flight.ts'
import type { Backend } from './backend.ts'
import { createRuns, type Runs, type RunWatcher } from './runs.ts'

/** Milliseconds. */
export type ConnectionTimings = {
  readonly handshakeTimeoutMs: number
  /** Between two pings. A gateway that sends nothing in this time counts as gone. */
  readonly pingMs: number
  /** How long the agent waits for the connection to close. */
  readonly closeTimeoutMs: number
}

/** Pings are frequent: some proxies close a connection that is silent for one or two minutes. */
export const CONNECTION_TIMINGS: ConnectionTimings = {
  handshakeTimeoutMs: 10_000,
  pingMs: 30_000,
  closeTimeoutMs: 2_000,
}

export type ConnectionEnd = {
  /** WebSocket close code. 1006 if the gateway sent no code. */
  readonly code: number
  /** The gateway's reason, or the fault's message. Attacker-controlled. */
  readonly reason: string
  /** How long the connection was open. Null if it never opened. */
  readonly openMs: number | null
  /** True if the gateway asked the agent to connect again. */
  readonly isRequested: boolean
}

export type Connection = {
  /** Never rejects. */
  readonly closed: Promise<ConnectionEnd>
  /** Accepts no new runs, and waits at most `graceMs` for the running runs to end. */
  drain(graceMs: number): Promise<void>
  status(): { readonly isOpen: boolean; readonly running: number }
}

type ConnectionOptions = {
  /** `http(s)://host[:port][/path]`. */
  readonly gatewayUrl: string
  readonly apiKey: string
  readonly nodeId: string
  readonly nodeType: NodeType
  /** True if the backend may receive URLs of images. Default false. */
  readonly fetchesMedia?: boolean
  /** 1 to MODELS_MAX models. A node that makes images has exactly one model. */
  readonly models: readonly string[]
  /** Dialects besides chat completions. Default: none. */
  readonly dialects?: readonly NodeDialect[]
  readonly backend: Pick<Backend, 'streamChat' | 'streamDialect' | 'makeImages'>
  readonly readLoad: () => Promise<Load>
  readonly timings: ConnectionTimings
  /** If set, the agent asks the gateway for the trace of each run. */
  readonly watchRun?: RunWatcher | undefined
  /** Milliseconds of a clock that never goes back. */
  readonly now: () => number
  readonly log: Logger
  readonly onOpen: () => void
}

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
    fetchesMedia: options.fetchesMedia,
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
  // A 'close' event follows. Without this listener, an error would end the process.
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
      resolve({
        code,
        reason: state.fault ?? reason.toString(),
        openMs,
        isRequested: state.isReconnecting,
      })
    })
  })
  return {
    closed,
    drain: async (graceMs) => {
      runs.close()
      state.isDraining = true
      void sender.send(encodeNodeControl(nodeId, { kind: 'drain' }))
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

function dial(options: ConnectionOptions): WebSocket {
  const { gatewayUrl, apiKey, nodeId, nodeType: modelType, models, timings, watchRun } = options
  const features = new Set(FEATURES)
  if (watchRun !== undefined) features.add('trace')
  if (options.fetchesMedia) features.add('remote-media')
  for (const dialect of options.dialects ?? []) features.add(dialect)
  return new WebSocket(socketUrl(gatewayUrl), {
    headers: {
      authorization: `Bearer ${apiKey}`,
      ...helloHeaders({ nodeId, models, modelType, features }),
    },
    handshakeTimeout: timings.handshakeTimeoutMs,
    maxPayload: LARGE_FRAME_BYTES_MAX,
    // Compression saves little on small chunks, and costs memory for each connection.
    perMessageDeflate: false,
    followRedirects: false,
  })
}

/** Every agent announces these features (src/nodes/README.md). */
const FEATURES: readonly NodeFeature[] = ['cancel', 'drain', 'extra-members', 'large-frames']

function socketUrl(gatewayUrl: string): URL {
  const url = new URL(gatewayUrl)
  url.protocol = url.protocol === 'https:' ? 'wss:' : 'ws:'
  url.pathname = `${url.pathname.replace(/\/+$/, '')}/v1/node/ws`
  return url
}

/** The returned function never throws, and ignores frames that it does not understand. */
function createResponder({
  nodeId,
  runs,
  sender,
  readLoad,
  roundTripMs,
  onReconnect,
  log,
}: {
  readonly nodeId: string
  readonly runs: Runs
  readonly sender: Sender
  readonly readLoad: () => Promise<Load>
  /** Round trip of the newest answered ping. Null before the first answer. */
  readonly roundTripMs: () => number | null
  readonly onReconnect: () => void
  readonly log: Logger
}): (text: string) => void {
  const { send } = sender
  // A reading takes half a second and starts a process, so only one reading runs at a time.
  const readOnce = singleFlight(readLoad)

  function obey(control: AskedControl): void {
    switch (control.kind) {
      case 'cancel':
        runs.cancel(control.requestId)
        break
      case 'reconnect':
        onReconnect()
        break
      case 'ping':
        // No answers are sent to a gateway that does not read them.
        if (!sender.isBehind()) {
          const pong = { kind: 'pong', nonce: control.nonce, roundTripMs: roundTripMs() } as const
          void send(encodeNodeControl(nodeId, pong))
        }
        break
      case 'health':
        void answerHealth(control.nonce)
        break
    }
  }

  async function answerHealth(nonce: string): Promise<void> {
    const load = await readOnce().catch(() => null)
    if (load !== null && !sender.isBehind())
      void send(encodeNodeControl(nodeId, { kind: 'health', nonce, load }))
  }

  return (text) => {
    const frame = decodeGatewayFrame(text)
    switch (frame.kind) {
      case 'chat':
      case 'image':
        runs.start(frame)
        break
      case 'bad_chat':
        void send(encodeFailure(frame.id, { statusCode: 400, message: frame.message }))
        break
      case 'bad_image':
        void send(encodeImageFailure(frame.id, { statusCode: 400, message: frame.message }))
        break
      case 'control': {
        const control = parseGatewayControl(frame.protocol, frame.data, nodeId)
        if (control === null) log.debug({ size: text.length }, 'control frame not understood')
        else obey(control)
        break
      }
      case 'unknown':
        log.debug({ size: text.length }, 'frame not understood')
        break
    }
  }
}

/** Above this number of unsent bytes, the runs wait before they send more frames. */
const WAITING_BYTES_MAX = 1024 * 1024

type Sender = {
  /** If `send` returns a promise, the caller should wait before the next frame. */
  send(frame: string): void | Promise<void>
  /** Sets the socket that carries the WebSocket. Frames of one tick are then sent in one write. */
  attach(socket: Socket): void
  /** True if the gateway reads frames more slowly than they are sent. */
  isBehind(): boolean
}

function createSender(socket: WebSocket): Sender {
  let stream: Socket | null = null
  let isCorked = false

  /**
   * Sends the frames of one tick with one system call, because a packet can contain many chunks.
   */
  function gather(): void {
    if (stream === null || isCorked) return
    const corked = stream
    isCorked = true
    corked.cork()
    process.nextTick(() => {
      isCorked = false
      corked.uncork()
    })
  }

  const isBehind = () => socket.bufferedAmount > WAITING_BYTES_MAX
  return {
    send: (frame) => {
      if (socket.readyState !== socket.OPEN) return
      gather()
      if (!isBehind()) {
        socket.send(frame, ignore)
        return
      }
      return new Promise((resolve) => socket.send(frame, () => resolve()))
    },
    attach: (socketBelow) => {
      stream = socketBelow
    },
    isBehind,
  }
}

/** A closing socket accepts no frames. Its 'close' event follows. */
function ignore(): void {}

type Liveness = {
  start(): void
  stop(): void
  /** Round trip of the newest answered ping. Null before the first answer. */
  roundTripMs(): number | null
}

/**
 * Ends the connection if nothing arrived between two pings: the other end can be gone without a
 * close frame. `now` is milliseconds of a clock that never goes back.
 */
function watchLiveness(socket: WebSocket, pingMs: number, now: () => number): Liveness {
  let timer: NodeJS.Timeout | undefined
  let hasReceived = true
  let pingedAt = 0
  let roundTripMs: number | null = null
  const markReceived = () => {
    hasReceived = true
  }
  socket.on('message', markReceived)
  socket.on('ping', markReceived)
  socket.on('pong', () => {
    roundTripMs = now() - pingedAt
    markReceived()
  })
  const ping = () => {
    pingedAt = now()
    socket.ping()
  }
  return {
    start: () => {
      ping()
      timer = setInterval(() => {
        if (!hasReceived) socket.terminate()
        else if (socket.readyState === socket.OPEN) {
          hasReceived = false
          ping()
        }
      }, pingMs)
    },
    stop: () => clearInterval(timer),
    roundTripMs: () => roundTripMs,
  }
}
