/** Room that an answer is given before its size is known, bytes; more is taken as it grows. */
export const ANSWER_ROOM_BYTES = 64 * 1024

/** Space that one running call holds. */
export type Reservation = {
  /** Says that the answer has so many bytes more. Never refuses: a completion that was begun is finished. */
  readonly grow: (bytes: number) => void
  /** Gives everything back. Harmless when repeated. */
  readonly release: () => void
}

/**
 * Counts the bytes that pending completions and running calls hold. A call is refused while the sum is at the limit,
 * before its provider is asked. So the process holds at most `bytesMax` and what running calls grew beyond
 * ANSWER_ROOM_BYTES.
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

  /** Space for a call whose request has `requestBytes`, or null when there is none. */
  reserve(requestBytes: number): Reservation | null {
    const room = requestBytes + ANSWER_ROOM_BYTES
    if (this.usedBytes + room > this.bytesMax) return null
    this.usedBytes += room
    let held = room
    let answerBytes = 0
    return {
      grow: (bytes) => {
        answerBytes += bytes
        const more = Math.max(held, requestBytes + answerBytes) - held
        held += more
        this.usedBytes += more
      },
      release: () => {
        this.usedBytes -= held
        held = 0
      },
    }
  }

  /** Counts a pending completion, which is kept whatever the limit. */
  add(bytes: number): void {
    this.usedBytes += bytes
  }

  remove(bytes: number): void {
    this.usedBytes -= bytes
  }
}
