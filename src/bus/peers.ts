/** A gateway that sent nothing for this long counts as gone. Calls to and from it are lost. */
const PRESENCE_EXPIRES_MS = 3_500
/** Without this limit, a writer on the bus could invent any number of gateways. */
export const PEERS_MAX = 256

/** The other gateways on the bus, known from their messages. */
type Peers = {
  list(): readonly string[]
  has(peer: string): boolean
  /**
   * Records a message from a gateway's connection number `epoch`. False if the message must be
   * ignored: it belongs to an earlier connection, or PEERS_MAX gateways are known.
   */
  see(peer: string, epoch: number): boolean
  forget(peer: string, why: string): void
  forgetAll(why: string): void
  /** Removes gateways that have sent nothing for too long. */
  expire(): void
}

/** `now` returns monotonic milliseconds. */
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
      // Calls of the gateway's earlier connection are lost.
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
