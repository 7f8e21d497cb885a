import { ByteBuffer } from '../byte-buffer.ts'

/** One server-sent event that carried data. `event` is '' when the stream named none. */
export type ServerEvent = { readonly event: string; readonly data: string }

/** An event goes over the limit. The stream cannot be read on. */
export class EventTooLargeError extends Error {
  override readonly name = 'EventTooLargeError'
}

/**
 * Splits a stream of bytes into server-sent events (WHATWG HTML, section 9.2.6), for any cut into
 * packets: lines end with LF, CRLF or CR; text is decoded a line at a time, so no character is cut;
 * bytes that are not UTF-8 become U+FFFD. The bytes may be an attacker's. Comments, `id`, `retry`
 * and unknown fields are skipped.
 *
 * Unlike the standard, `end` also gives an event that no blank line ends, because servers leave it
 * out. With `errorLines`, a field `error` is an event of its own, named `error`: llama.cpp reports
 * failures so.
 */
export class EventParser {
  private readonly eventBytesMax: number
  private readonly errorLines: boolean
  /** Beginning of a line whose end is in a later packet. */
  private readonly pending = new ByteBuffer()
  private dataLines: string[] = []
  private dataBytes = 0
  /** Of the lines with that data, what is before the data counted too. */
  private lineBytes = 0
  private eventName = ''
  private isFirstLine = true
  /** The line before ended with CR: an LF that follows belongs to it. */
  private skipsLineFeed = false

  /** `eventBytesMax`: of the lines of one event. Left out, the reader of the events limits them. */
  constructor({
    eventBytesMax = Number.POSITIVE_INFINITY,
    errorLines = false,
  }: { readonly eventBytesMax?: number; readonly errorLines?: boolean } = {}) {
    this.eventBytesMax = eventBytesMax
    this.errorLines = errorLines
  }

  /** Bytes of the event that is not complete yet. */
  get waitingBytes(): number {
    return this.dataBytes + this.pending.length
  }

  /**
   * Takes the next bytes and adds the events they complete to `events`, which is what it gives.
   * Throws EventTooLargeError; the events before it are in `events` then.
   */
  push(bytes: Uint8Array, events: ServerEvent[] = []): readonly ServerEvent[] {
    let start = 0
    if (bytes.length > 0 && bytes[0] !== LINE_FEED) this.skipsLineFeed = false
    // Most servers send no CR, and the platform's search is faster than a look at each byte.
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

  /**
   * Says that the stream ended cleanly, and adds the event that was pending, if any. Throws as
   * `push`.
   */
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
      // At least 1, so that empty data lines count too.
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

  /** `length`: of a line beside those that are counted. */
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

/** Keeps the byte order mark, which the parser drops at the stream's beginning only. */
const decoder = new TextDecoder('utf-8', { ignoreBOM: true })
