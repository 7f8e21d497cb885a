/**
 * First reservation for an answer of unknown size, bytes. The reservation grows with the answer.
 */
export const ANSWER_ROOM_BYTES = 64 * 1024

/**
 * A call that takes more bytes is a large call. Few calls are large: a stream of 64k tokens of text
 * takes 3 MiB.
 */
export const SMALL_CALL_BYTES = 4 * 2 ** 20

/** The share of the memory for large calls. The rest is for small calls only. */
const LARGE_CALLS_SHARE = 3 / 4

export type Reservation = {
  /**
   * Reserves this many more bytes for the answer. Returns false, without a change, if memory is
   * short: the call must end.
   */
  readonly grow: (bytes: number) => boolean
  /** Sets the total bytes for the answer. Returns false, without a change, if memory is short. */
  readonly hold: (bytes: number) => boolean
  /** May be called more than once. */
  readonly release: () => void
}

/**
 * Counts the estimated memory (weigh-json.ts) of pending completions and running calls, and keeps
 * the sum below `bytesMax`. A new call that exceeds this limit is refused before its provider is
 * called. A running call that exceeds the limit is ended. A sealed completion is always accepted,
 * because its call held at least as much memory.
 */
export class Space {
  private readonly bytesMax: number
  private usedBytes = 0

  constructor(bytesMax: number) {
    this.bytesMax = bytesMax
  }

  get used(): number {
    return this.usedBytes
  }

  /** Reserves memory for a call whose request takes `requestBytes`. Null if memory is short. */
  reserve(requestBytes: number): Reservation | null {
    let held = 0
    let answerBytes = 0
    let isOver = false
    const hold = (bytes: number): boolean => {
      if (isOver) return true
      const wanted = requestBytes + Math.max(bytes, ANSWER_ROOM_BYTES)
      if (wanted > held && this.usedBytes - held + wanted > this.limitOf(wanted)) return false
      this.usedBytes += wanted - held
      held = wanted
      answerBytes = bytes
      return true
    }
    if (!hold(0)) return null
    return {
      grow: (bytes) => hold(answerBytes + bytes),
      hold,
      release: () => {
        this.usedBytes -= held
        held = 0
        isOver = true
      },
    }
  }

  /** Counts a pending completion. No limit applies. */
  add(bytes: number): void {
    this.usedBytes += bytes
  }

  remove(bytes: number): void {
    this.usedBytes -= bytes
  }

  private limitOf(held: number): number {
    return held > SMALL_CALL_BYTES ? this.bytesMax * LARGE_CALLS_SHARE : this.bytesMax
  }
}
