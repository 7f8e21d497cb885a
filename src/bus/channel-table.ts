import { createChannel, type OpenChannel } from './channel.ts'

/** Enough for the gateway's own calls and the calls of other gateways. */
export const CHANNELS_MAX = 10_000
/** Bytes that wait for their readers, in all channels together. */
const HELD_BYTES_MAX = 256 * 1024 * 1024
/** Gateways report each channel every second. */
const UNKNOWN_EXPIRES_MS = 3_000

/** How many frames a gateway has sent on some or all of its channels. */
type Tally = readonly (readonly [name: string, sent: number])[]

type ChannelTable = {
  size(): number
  /** Null if the name is taken. */
  add(peer: string, name: string): OpenChannel | null
  receive(name: string, frame: Uint8Array): void
  lose(name: string, why: string): void
  /** Null ends the channels to all gateways. */
  loseAll(peer: string | null, why: string): void
  tally(peer: string): Tally
  /**
   * A channel with a missing frame is lost. Returns the names that have no channel here, and had
   * none in another recent tally of the peer: a channel that has just ended here can be in one.
   */
  check(peer: string, tally: Tally): readonly string[]
}

/**
 * `publish` sends a frame to a channel on another gateway, or drops it. `now` returns monotonic
 * milliseconds.
 */
export function createChannelTable({
  publish,
  partBytesMax,
  now,
}: {
  readonly publish: (peer: string, name: string, frame: Uint8Array) => void
  readonly partBytesMax: () => number
  readonly now: () => number
}): ChannelTable {
  const channels = new Map<string, OpenChannel>()
  /** By peer: when each name without a channel here was last in a tally. */
  const unknownOf = new Map<string, Map<string, number>>()
  let heldBytes = 0

  const hold = (bytes: number) => {
    heldBytes += bytes
    return heldBytes <= HELD_BYTES_MAX
  }

  return {
    size: () => channels.size,
    add(peer, name) {
      if (channels.has(name)) return null
      const channel = createChannel({
        peer,
        hold,
        partBytesMax: partBytesMax(),
        publish: (frame) => publish(peer, name, frame),
        onOver: () => channels.delete(name),
      })
      channels.set(name, channel)
      return channel
    },
    receive: (name, frame) => channels.get(name)?.receive(frame),
    lose: (name, why) => channels.get(name)?.lose(why),
    loseAll(peer, why) {
      for (const channel of [...channels.values()])
        if (peer === null || channel.peer === peer) channel.lose(why)
      if (peer === null) unknownOf.clear()
      else unknownOf.delete(peer)
    },
    tally: (peer) =>
      [...channels]
        .filter(([, channel]) => channel.peer === peer)
        .map(([name, channel]) => [name, channel.sent()]),
    check(peer, tally) {
      const unknown = unknownOf.get(peer) ?? new Map<string, number>()
      unknownOf.set(peer, unknown)
      const nowMs = now()
      for (const [name, seenAtMs] of unknown)
        if (seenAtMs < nowMs - UNKNOWN_EXPIRES_MS) unknown.delete(name)
      const lost: string[] = []
      for (const [name, sent] of tally) {
        const channel = channels.get(name)
        if (channel?.peer === peer) channel.check(sent)
        if (channel !== undefined) continue
        if (unknown.has(name)) lost.push(name)
        // Without the limit, a peer could invent any number of names.
        if (unknown.has(name) || unknown.size < CHANNELS_MAX) unknown.set(name, nowMs)
      }
      return lost
    },
  }
}
