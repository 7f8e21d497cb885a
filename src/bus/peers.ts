/** A gateway that sent nothing for this long is gone, and its calls are lost. */
export const PRESENCE_EXPIRES_MS = 3_500
/** Most gateways that are remembered: anyone who may write on the bus can invent names. */
export const PEERS_MAX = 256

/** The other gateways on the bus, as far as their messages arrived. */
export type Peers = {
  list(): readonly string[]
  has(peer: string): boolean
  /**
   * Records a message of a gateway on its connection number `epoch`. Gives false when the message
   * must be ignored: it is of an earlier connection, or there are already PEERS_MAX gateways.
   */
  see(peer: string, epoch: number): boolean
  forget(peer: string, why: string): void
  forgetAll(why: string): void
  /** Forgets gateways that have been silent too long. */
  expire(): void
}

/** Creates an empty list of peers. `now`: milliseconds, monotonic. */
export function createPeers({
  now,
  onCome,
  onGone,
}: {
  readonly now: () => number
  readonly onCome: (peer: string) => void
  readonly onGone: (peer: string, why: string) => void
}): Peers {
  const seen = new Map<string, { seenAtMs: number; readonly epoch: number }>()

  function forget(peer: string, why: string): void {
    if (seen.delete(peer)) onGone(peer, why)
  }

  return {
    list: () => [...seen.keys()],
    has: (peer) => seen.has(peer),
    see(peer, epoch) {
      const known = seen.get(peer)
      if (known?.epoch === epoch) {
        known.seenAtMs = now()
        return true
      }
      if (known === undefined ? seen.size >= PEERS_MAX : epoch < known.epoch) return false
      // Calls on the gateway's earlier connection are lost.
      forget(peer, 'it connected anew')
      seen.set(peer, { seenAtMs: now(), epoch })
      onCome(peer)
      return true
    },
    forget,
    forgetAll(why) {
      for (const peer of [...seen.keys()]) forget(peer, why)
    },
    expire() {
      const expiredMs = now() - PRESENCE_EXPIRES_MS
      for (const [peer, { seenAtMs }] of [...seen])
        if (seenAtMs < expiredMs) forget(peer, 'it fell silent')
    },
  }
}
