import type { WebSocket } from 'ws'
import type { GatewayControl, NodeLoad } from '../protocol/control-frames.ts'
import type { NodeLimits } from './limits.ts'

/** Detects a lost node. Has no timer: acts only when `tend` is called. */
export type Liveness = {
  /** Must be called when any data arrives from the node. */
  received(): void
  /** Must be called while the node cannot answer: its silence then does not count. */
  excuse(): void
  isAwaitingPong(): boolean
  /** False when the gateway did not ask for this pong. */
  ponged(nonce: string): boolean
  /** False when the gateway did not ask for this answer. */
  reported(nonce: string, load: NodeLoad): boolean
  tend(isIdle: boolean): void
  /**
   * True if the node was asked to connect again, and so may close at any moment. Changes only in
   * `tend`.
   */
  isLeaving(): boolean
  /** The load that the node last reported. */
  load(): NodeLoad | null
}

type LivenessActions = {
  socketPing(): void
  send(control: Exclude<GatewayControl, { readonly kind: 'cancel' }>): void
  /** Called when the node is lost without a close frame. Liveness then sends no more frames. */
  lose(why: string): void
}

type LivenessOptions = {
  readonly limits: NodeLimits
  readonly now: () => number
  /** From 0 to below 1. */
  readonly random: () => number
  readonly makeId: () => string
  readonly actions: LivenessActions
}

/**
 * After silence, a WebSocket ping detects a half-open socket. The protocol's ping detects a program
 * that hangs although its socket works. Times are random, so that nodes that connected together
 * (after a restart) are not pinged together.
 */
export function createLiveness(options: LivenessOptions): Liveness {
  const { limits, now, makeId, actions } = options
  const pings = watchPings(options)
  const reconnects = watchAge(options)
  let receivedAtMs = now()
  let socketPingAtMs: number | null = null
  let healthAtMs = sometime(limits.healthMs, options)
  let healthNonce: string | null = null
  let lastLoad: NodeLoad | null = null

  function tendSocket(nowMs: number): boolean {
    if (socketPingAtMs === null) {
      if (nowMs - receivedAtMs < limits.silenceMs) return true
      socketPingAtMs = nowMs
      actions.socketPing()
      return true
    }
    if (nowMs - socketPingAtMs < limits.silenceTimeoutMs) return true
    actions.lose('silent')
    return false
  }

  function tendHealth(nowMs: number): void {
    if (nowMs < healthAtMs) return
    healthAtMs = nowMs + limits.healthMs
    healthNonce = makeId()
    actions.send({ kind: 'health', nonce: healthNonce })
  }

  function received(): void {
    receivedAtMs = now()
    socketPingAtMs = null
  }

  return {
    received,
    excuse() {
      received()
      pings.excuse()
    },
    isAwaitingPong: () => socketPingAtMs !== null,
    ponged: pings.ponged,
    reported(nonce, load) {
      if (healthNonce !== nonce) return false
      healthNonce = null
      lastLoad = load
      return true
    },
    tend(isIdle) {
      const nowMs = now()
      if (!tendSocket(nowMs) || !pings.tend(nowMs)) return
      tendHealth(nowMs)
      reconnects.tend(nowMs, isIdle)
    },
    isLeaving: reconnects.isLeaving,
    load: () => lastLoad,
  }
}

/** Returns a random time in the second half of the interval. */
function sometime(intervalMs: number, { now, random }: LivenessOptions): number {
  return now() + intervalMs * (0.5 + random() / 2)
}

/** Sends the protocol's pings. `tend` returns false when the node is lost. */
function watchPings(options: LivenessOptions) {
  const { limits, now, makeId, actions } = options
  let pingAtMs = sometime(limits.pingMs, options)
  let ping: { readonly nonce: string; readonly sentAtMs: number } | null = null
  let figures = { rttMs: 0, pingStreak: 0, missStreak: 0 }

  return {
    ponged(nonce: string): boolean {
      if (ping?.nonce !== nonce) return false
      figures = { rttMs: now() - ping.sentAtMs, pingStreak: figures.pingStreak + 1, missStreak: 0 }
      ping = null
      return true
    },
    excuse() {
      if (ping !== null) ping = { ...ping, sentAtMs: now() }
    },
    tend(nowMs: number): boolean {
      if (ping !== null && nowMs - ping.sentAtMs >= limits.pingTimeoutMs) {
        ping = null
        figures = { ...figures, pingStreak: 0, missStreak: figures.missStreak + 1 }
      }
      if (figures.missStreak >= limits.pingMissesMax) {
        actions.lose('no answer to pings')
        return false
      }
      if (ping !== null || nowMs < pingAtMs) return true
      pingAtMs = nowMs + limits.pingMs
      ping = { nonce: makeId(), sentAtMs: nowMs }
      actions.send({ kind: 'ping', nonce: ping.nonce, ...figures })
      return true
    },
  }
}

/** Asks nodes to connect again. A node that stays gets calls again, and is asked again later. */
function watchAge(options: LivenessOptions) {
  const { limits, makeId, actions } = options
  let reconnectAtMs = sometime(limits.reconnectMs, options)
  let leavingUntilMs: number | null = null

  return {
    isLeaving: () => leavingUntilMs !== null,
    tend(nowMs: number, isIdle: boolean): void {
      if (leavingUntilMs !== null && nowMs >= leavingUntilMs) leavingUntilMs = null
      if (!isIdle || nowMs < reconnectAtMs) return
      reconnectAtMs = sometime(limits.reconnectMs, options)
      leavingUntilMs = nowMs + limits.pingTimeoutMs
      actions.send({ kind: 'reconnect', nonce: makeId() })
    },
  }
}

/** Resolves to false if the socket does not answer in time. */
export function awaitPong(socket: WebSocket, timeoutMs: number): Promise<boolean> {
  const { promise, resolve } = Promise.withResolvers<boolean>()
  const onPong = () => resolve(true)
  const onClose = () => resolve(false)
  const timer = setTimeout(onClose, timeoutMs)
  socket.on('pong', onPong).on('close', onClose)
  socket.ping()
  return promise.finally(() => {
    clearTimeout(timer)
    socket.off('pong', onPong).off('close', onClose)
  })
}
