import { createHash } from 'node:crypto'
import type { ServerEvent } from '#attestation/dialects/chat/event-parser.ts'
import type { JsonObject } from '#attestation/json/value.ts'
import type { StreamMemory } from '../calls/answer-memory.ts'

/** Reads the events of one streamed answer (attacker-controlled). */
export type AnswerStream = {
  /** True after the last event was given out. */
  readonly isDone: boolean
  /** The data that grows with the answer. Its memory is measured. */
  readonly assembly: unknown
  /**
   * Gives out the events that callers get for this event, whose data must not be empty. Throws
   * CallFault `provider_error` for an event that two readers would understand differently.
   */
  read(event: ServerEvent): void
  /** Ends the stream after the end of the body. Throws CallFault if the answer is incomplete. */
  end(): void
  /** The answer from all events that were given out. */
  response(): JsonObject
}

export type StreamParts = { readonly output: StreamOutput; readonly memory: StreamMemory }

/**
 * The events for a caller, until the relay sends them. Holds back an event that may be the last,
 * because the gateway gets the last event under the name STREAM_EVENTS.last.
 */
export class StreamOutput {
  hasGiven = false
  private readonly hash = createHash('sha256')
  private text = ''
  /** Lines that are not hashed yet. One update for many lines is cheaper. */
  private unhashed = ''
  private held: { readonly encoded: string; readonly data: string } | null = null
  private lastData: string | null = null

  get isHolding(): boolean {
    return this.held !== null
  }

  /** Gives out an event. `line` is hashed. `data` is the event's canonical JSON text. */
  give(line: string, { event, data, mayBeLast }: GivenEvent): void {
    this.hasGiven = true
    this.unhashed += line
    this.flush()
    const encoded = event === '' ? `data: ${data}\n\n` : `event: ${event}\ndata: ${data}\n\n`
    if (mayBeLast) this.held = { encoded, data }
    else this.text += encoded
  }

  /** Marks the held event as the last event. */
  conclude(): void {
    this.lastData = this.held?.data ?? null
    this.held = null
  }

  /** Releases the held event, because it is not the last event. */
  flush(): void {
    if (this.held !== null) this.text += this.held.encoded
    this.held = null
  }

  /** Drops what was not sent, so that the call can fail without a record. */
  discard(): void {
    this.text = ''
    this.held = null
    this.hasGiven = false
  }

  /** Returns the text to send, and forgets it. `last` is the data of the last event. */
  take(): { readonly text: string; readonly last: string | null } {
    const { text, lastData: last } = this
    this.hash.update(this.unhashed)
    this.unhashed = ''
    this.text = ''
    this.lastData = null
    return { text, last }
  }

  /** The stream hash (hex) of all events that were given out. Call it once, at the end. */
  digest(): string {
    return this.hash.update(this.unhashed).digest('hex')
  }
}

type GivenEvent = {
  /** '' for an event without a name. */
  readonly event: string
  readonly data: string
  readonly mayBeLast: boolean
}
