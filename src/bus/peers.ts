/** A gateway that sent nothing for so long is gone, and with it its calls. */
export const PRESENCE_EXPIRES_MS = 3_500
/** Gateways that are remembered: anyone who may write on the bus can name any number. */
export const PEERS_MAX = 256

/** Who else is on the bus, as far as they sent something. */
export type Peers = {
  list(): readonly string[]
  has(peer: string): boolean
  /**
   * Records that a gateway sent something, on its so many-th connection to the bus. False for what
   * is to be ignored: it is of an earlier connection, or of one gateway too many.
   */
  see(peer: string, epoch: number): boolean
  forget(peer: string, why: string): void
  forgetAll(why: string): void
  /** Forgets the gateways that fell silent. */
  expire(): void
}

/** No peer yet. `now`: milliseconds, monotonic. */
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
      // What was under way to its earlier connection is lost.
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
