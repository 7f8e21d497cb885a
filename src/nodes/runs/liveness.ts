import type { WebSocket } from 'ws'
import type { GatewayControl, NodeLoad } from '../protocol/control-frames.ts'
import type { NodeLimits } from './limits.ts'

/** What keeps watch of one connection; it owns no timer, and acts when it is tended. */
export type Liveness = {
  /** Something came from the node, whatever it was. */
  heard(): void
  /** Whether a WebSocket ping is unanswered. */
  isAwaitingPong(): boolean
  /** A PONG came. False when nobody asked for it. */
  ponged(nonce: string): boolean
  /** A health answer came. False when nobody asked for it. */
  reported(nonce: string, load: NodeLoad): boolean
  /** Sends what is due. */
  tend(isIdle: boolean): void
  /**
   * Whether the node was asked to dial again, and may close at any moment. Changes only when
   * tended.
   */
  isLeaving(): boolean
  /** The node's own last statement of its load. */
  load(): NodeLoad | null
}

/** How liveness reaches its connection. */
type LivenessActions = {
  socketPing(): void
  send(control: Exclude<GatewayControl, { readonly kind: 'cancel' }>): void
  /** The node is gone without a word: nothing is sent any more. */
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
 * Watches one connection. A WebSocket ping after silence finds a socket that is half-open; the
 * protocol's ping finds a program that hangs behind a socket that lives, and measures its round
 * trip. Times are spread at random, so that nodes that came together (after a restart) are not all
 * pinged together.
 */
export function createLiveness(options: LivenessOptions): Liveness {
  const { limits, now, makeId, actions } = options
  const pings = watchPings(options)
  const reconnects = watchAge(options)
  let heardAtMs = now()
  let socketPingAtMs: number | null = null
  let healthAtMs = sometime(limits.healthMs, options)
  let healthNonce: string | null = null
  let lastLoad: NodeLoad | null = null

  function tendSocket(nowMs: number): boolean {
    if (socketPingAtMs === null) {
      if (nowMs - heardAtMs < limits.silenceMs) return true
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

  return {
    heard() {
      heardAtMs = now()
      socketPingAtMs = null
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

/** A time in the second half of the interval that begins now. */
function sometime(intervalMs: number, { now, random }: LivenessOptions): number {
  return now() + intervalMs * (0.5 + random() / 2)
}

/** The protocol's ping. `tend` is false once the node is lost. */
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

/**
 * Asks a node to dial again when its connection is old. One that stays is given work again, and
 * asked later.
 */
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

/** Pings an open socket, and resolves with whether it answers in time. */
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
