import type { JsonObject } from '#attestation/json/value.ts'
import { ANSWER_BYTES_MAX } from '../protocol/frames.ts'
import { endOf, isEventName } from './read-event.ts'

/** Memory that a piece takes besides its text, in UTF-16 units. */
const PIECE_EXTRA = 32

/** UTF-16 units of pieces that all runs of this process may hold. */
const HELD_MAX = 128 * 1024 * 1024
let held = 0

/** `bytes`: size of all frames of the chunk. */
type Joined =
  | { readonly kind: 'whole'; readonly chunk: JsonObject; readonly bytes: number }
  /** More pieces must follow. */
  | { readonly kind: 'open' }
  | { readonly kind: 'refused'; readonly why: string }

/**
 * Joins the pieces of events that are larger than a frame: some backends repeat the whole answer
 * in one event (https://github.com/zendev-sh/goai/issues/70). An attacker controls the pieces. They
 * are held until the last one, at most ANSWER_BYTES_MAX units of one event. Only the form of the
 * pieces is checked: the joined event must be checked like any other.
 */
export class EventPieces {
  private name: string | null = null
  private texts: string[] = []
  private length = 0
  private bytes = 0
  private isDropped = false
  /** Units of the pieces that this run holds. */
  private held = 0

  isOpen(): boolean {
    return this.name !== null
  }

  /** Returns a chunk that is not a piece as it is. */
  push(chunk: JsonObject, bytes: number): Joined {
    const { event, piece, is_last: isLast } = chunk
    if (typeof piece !== 'string')
      return this.isOpen()
        ? { kind: 'refused', why: 'expected the next piece of an event' }
        : { kind: 'whole', chunk, bytes }
    if (!isEventName(event) || typeof isLast !== 'boolean' || event !== (this.name ?? event))
      return { kind: 'refused', why: 'expected a piece of one event' }
    this.name = event
    this.bytes += bytes
    this.length += piece.length + PIECE_EXTRA
    if (this.length > ANSWER_BYTES_MAX)
      return { kind: 'refused', why: `expected events of at most ${ANSWER_BYTES_MAX} bytes` }
    if (this.isDropped) this.texts = [endOf(this.texts.join('') + piece)]
    else {
      this.hold(this.held + piece.length + PIECE_EXTRA)
      if (held > HELD_MAX) return { kind: 'refused', why: 'expected fewer large events at once' }
      this.texts.push(piece)
    }
    return isLast ? this.take(event) : { kind: 'open' }
  }

  /** Drops the collected pieces. From then on, only the end of an event is kept. */
  drop(): void {
    this.isDropped = true
    this.hold(0)
    this.texts = this.texts.slice(-1).map(endOf)
  }

  private hold(units: number): void {
    held += units - this.held
    this.held = units
  }

  private take(event: string): Joined {
    const { texts, bytes } = this
    this.hold(0)
    this.name = null
    this.texts = []
    this.length = 0
    this.bytes = 0
    return { kind: 'whole', chunk: { event, data: texts.join('') }, bytes }
  }
}
