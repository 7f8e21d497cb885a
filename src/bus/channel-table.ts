import { createChannel, type OpenChannel } from './channel.ts'

/** Enough for the gateway's own calls and the calls of other gateways. */
export const CHANNELS_MAX = 10_000
/** Bytes that wait for their readers, in all channels together. */
const HELD_BYTES_MAX = 256 * 1024 * 1024

/** How many frames a gateway has sent on each channel. */
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
   * A channel with a missing frame is lost. Returns the names that had no channel here, both now
   * and at the peer's previous tally.
   */
  check(peer: string, tally: Tally): readonly string[]
}

/** `publish` sends a frame to a channel on another gateway, or drops it. */
export function createChannelTable({
  publish,
  partBytesMax,
}: {
  readonly publish: (peer: string, name: string, frame: Uint8Array) => void
  readonly partBytesMax: () => number
}): ChannelTable {
  const channels = new Map<string, OpenChannel>()
  const unknownOf = new Map<string, ReadonlySet<string>>()
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
      const unknown = new Set<string>()
      for (const [name, sent] of tally) {
        const channel = channels.get(name)
        if (channel === undefined) unknown.add(name)
        else if (channel.peer === peer) channel.check(sent)
      }
      const before = unknownOf.get(peer)
      unknownOf.set(peer, unknown)
      return [...unknown].filter((name) => before?.has(name))
    },
  }
}
