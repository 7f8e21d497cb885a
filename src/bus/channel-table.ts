import { createChannel, type OpenChannel } from './channel.ts'

/** Channels of one gateway: as many calls, its own and those of others, as it has at once. */
export const CHANNELS_MAX = 10_000
/** Bytes of messages that wait in all of them, before their readers have them. */
export const HELD_BYTES_MAX = 256 * 1024 * 1024

/** How many frames a gateway has sent on a channel, by its name. */
export type Tally = readonly (readonly [name: string, sent: number])[]

/** The channels of this gateway, by name. */
export type ChannelTable = {
  size(): number
  /** Makes one; null for a name that is taken. */
  add(peer: string, name: string): OpenChannel | null
  /** Gives a channel the frame that came for it. */
  receive(name: string, frame: Uint8Array): void
  lose(name: string, why: string): void
  /** Loses all to a gateway; null: to any. */
  loseAll(peer: string | null, why: string): void
  tally(peer: string): Tally
  /**
   * Takes what a gateway counted of its channels to here: those with a missing frame are lost.
   * Gives the channels that are not known here, though they came twice.
   */
  check(peer: string, tally: Tally): readonly string[]
}

/** An empty table. `publish` sends a frame to a channel of a gateway, or drops it. */
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
