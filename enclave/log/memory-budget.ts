/** Room that an answer is given before its size is known, bytes; more is taken as it grows. */
export const ANSWER_ROOM_BYTES = 64 * 1024

/**
 * A call that holds more bytes is a large one. Few calls are: a stream of 64k tokens of text holds
 * 3 MiB.
 */
export const SMALL_CALL_BYTES = 4 * 2 ** 20

/**
 * The share of the space that large calls may fill. The rest is for small ones, so large ones
 * cannot crowd them out.
 */
const LARGE_CALLS_SHARE = 3 / 4

/** Memory that one running call holds. */
export type Reservation = {
  /**
   * Takes so many bytes more for the answer. False, and nothing is taken, when they are not there:
   * the call must end.
   */
  readonly grow: (bytes: number) => boolean
  /**
   * Says what the answer takes in all, bytes. False, and nothing is changed, when that is more than
   * there is.
   */
  readonly hold: (bytes: number) => boolean
  /** Gives everything back. Harmless when repeated. */
  readonly release: () => void
}

/**
 * Counts the memory that pending completions and running calls hold, as estimated (weigh-json.ts),
 * so that all of it together stays below `bytesMax`: a call that would go over it is refused before
 * its provider is asked, or ends alone. Only a completion that is sealed is always taken in; its
 * call held at least that much.
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

  /** Space for a call whose request takes `requestBytes`; null when there is not enough. */
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

  /** Counts a pending completion. It is kept even above the limit. */
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
