import { ByteBuffer } from '../../byte-buffer.ts'

/** One server-sent event with data. `event` is '' if the event has no name. */
export type ServerEvent = { readonly event: string; readonly data: string }

/** An event is larger than the limit. The rest of the stream cannot be read. */
export class EventTooLargeError extends Error {
  override readonly name = 'EventTooLargeError'
}

/**
 * Splits attacker-controlled bytes, in packets of any size, into server-sent events (WHATWG HTML,
 * section 9.2.6). Lines end with LF, CRLF or CR. Text is decoded line by line, so no character is
 * cut. Bytes that are not UTF-8 become U+FFFD. Comments, `id`, `retry` and unknown fields are
 * skipped. `end` also returns a last event without a blank line after it: the standard drops such
 * an event, but some servers send it. With `errorLines`, a field `error` becomes a separate event,
 * named `error`: llama.cpp reports failures in this way.
 */
export class EventParser {
  private readonly eventBytesMax: number
  private readonly errorLines: boolean
  /** The beginning of a line whose end is in a later packet. */
  private readonly pending = new ByteBuffer()
  private dataLines: string[] = []
  private dataBytes = 0
  /** Bytes of the data lines so far in the event, with their field names. */
  private lineBytes = 0
  private eventName = ''
  private isFirstLine = true
  /** True if the last line ended with CR. A LF that follows is part of the same line end. */
  private skipsLineFeed = false

  /**
   * `eventBytesMax`: limit for the lines of one event. If it is left out, the caller must limit the
   * lines.
   */
  constructor({
    eventBytesMax = Number.POSITIVE_INFINITY,
    errorLines = false,
  }: { readonly eventBytesMax?: number; readonly errorLines?: boolean } = {}) {
    this.eventBytesMax = eventBytesMax
    this.errorLines = errorLines
  }

  /** Bytes of the incomplete event. */
  get waitingBytes(): number {
    return this.dataBytes + this.pending.length
  }

  /**
   * Reads the next bytes, adds the completed events to `events` and returns `events`. Throws
   * EventTooLargeError after it has added the earlier events.
   */
  push(bytes: Uint8Array, events: ServerEvent[] = []): readonly ServerEvent[] {
    let start = 0
    if (bytes.length > 0 && bytes[0] !== LINE_FEED) this.skipsLineFeed = false
    // Without CR, as in most streams, indexOf finds line ends faster than a loop over the bytes.
    const nextEnd = bytes.includes(CARRIAGE_RETURN)
      ? (from: number) => from
      : (from: number) => endOr(bytes.indexOf(LINE_FEED, from), bytes.length)
    for (let index = nextEnd(0); index < bytes.length; index = nextEnd(index + 1)) {
      const byte = bytes[index]
      if (byte === LINE_FEED && this.skipsLineFeed) {
        this.skipsLineFeed = false
        start = index + 1
        continue
      }
      this.skipsLineFeed = false
      if (byte !== LINE_FEED && byte !== CARRIAGE_RETURN) continue
      this.skipsLineFeed = byte === CARRIAGE_RETURN
      this.endLine(bytes.subarray(start, index), events)
      start = index + 1
    }
    if (start < bytes.length) this.pending.append(bytes.subarray(start))
    this.checkSize(this.pending.length)
    return events
  }

  /** Adds a pending event. Call this after a clean end of the stream. Throws as `push` does. */
  end(events: ServerEvent[] = []): readonly ServerEvent[] {
    if (this.pending.length > 0) this.endLine(NO_BYTES, events)
    this.endEvent(events)
    return events
  }

  private endLine(rest: Uint8Array, events: ServerEvent[]): void {
    const length = this.pending.length + rest.length
    const line = this.decodeLine(rest)
    if (line === '') this.endEvent(events)
    else if (!line.startsWith(':')) this.readField(line, length, events)
  }

  private decodeLine(rest: Uint8Array): string {
    if (this.pending.length > 0) this.pending.append(rest)
    const line = decoder.decode(this.pending.length > 0 ? this.pending.take() : rest)
    const isMarked = this.isFirstLine && line.startsWith(BYTE_ORDER_MARK)
    this.isFirstLine = false
    return isMarked ? line.slice(1) : line
  }

  private readField(line: string, length: number, events: ServerEvent[]): void {
    const colon = line.indexOf(':')
    const name = colon < 0 ? line : line.slice(0, colon)
    const start = line.charAt(colon + 1) === ' ' ? colon + 2 : colon + 1
    const value = colon < 0 ? '' : line.slice(start)
    if (name === 'event') this.eventName = value
    else if (name === 'data') {
      this.checkSize(length)
      this.lineBytes += length
      // Adds at least 1, so empty data lines count too.
      this.dataBytes += value.length + 1
      this.dataLines.push(value)
    } else if (name === 'error' && this.errorLines) {
      this.checkSize(length)
      events.push({ event: name, data: value })
    }
  }

  private endEvent(events: ServerEvent[]): void {
    if (this.dataLines.length > 0)
      events.push({ event: this.eventName, data: this.dataLines.join('\n') })
    this.dataLines = []
    this.dataBytes = 0
    this.lineBytes = 0
    this.eventName = ''
  }

  /** `length`: bytes of a line that `lineBytes` does not include yet. */
  private checkSize(length: number): void {
    if (this.lineBytes + length > this.eventBytesMax)
      throw new EventTooLargeError(`expected events of at most ${this.eventBytesMax} bytes`)
  }
}

const LINE_FEED = 0x0a
const CARRIAGE_RETURN = 0x0d
const BYTE_ORDER_MARK = '\uFEFF'
const NO_BYTES = new Uint8Array()

function endOr(index: number, length: number): number {
  return index < 0 ? length : index
}

/** Keeps byte order marks: the parser drops one only at the beginning of the stream. */
const decoder = new TextDecoder('utf-8', { ignoreBOM: true })
