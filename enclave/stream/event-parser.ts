import { ByteBuffer } from '../../attestation/byte-buffer.ts'

/** One server-sent event that carried data. `event` is '' when the stream named none. */
export type ServerEvent = { readonly event: string; readonly data: string }

/**
 * Splits a stream of bytes into server-sent events (WHATWG HTML, section 9.2.6), for packets of any
 * size: lines end with LF, CRLF or CR; text is decoded a line at a time, so no character is cut;
 * bytes that are not UTF-8 become U+FFFD. The bytes are the provider's: attacker-controlled.
 * Comments, `id`, `retry` and unknown fields are skipped. An event may be as large as the whole
 * answer: the reader of the answer must limit its size.
 *
 * Unlike the standard, `end` also gives an event that no blank line ends, because providers leave
 * it out.
 */
export class EventParser {
  /** Beginning of a line whose end is in a later packet. */
  private readonly pending = new ByteBuffer()
  private dataLines: string[] = []
  private dataBytes = 0
  private eventName = ''
  private isFirstLine = true
  /** The line before ended with CR: an LF that follows belongs to it. */
  private skipsLineFeed = false

  /** Bytes of the event that is not complete yet. */
  get waitingBytes(): number {
    return this.dataBytes + this.pending.length
  }

  /** Takes the next bytes and gives the events they complete. */
  push(bytes: Uint8Array): readonly ServerEvent[] {
    const events: ServerEvent[] = []
    let start = 0
    if (bytes.length > 0 && bytes[0] !== LINE_FEED) this.skipsLineFeed = false
    // Most providers send none, and the platform's search is faster than a look at each byte.
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
    return events
  }

  /** Says that the stream ended cleanly, and gives the event that was pending, if any. */
  end(): readonly ServerEvent[] {
    const events: ServerEvent[] = []
    if (this.pending.length > 0) this.endLine(NO_BYTES, events)
    this.endEvent(events)
    return events
  }

  private endLine(rest: Uint8Array, events: ServerEvent[]): void {
    const line = this.decodeLine(rest)
    if (line === '') this.endEvent(events)
    else if (!line.startsWith(':')) this.readField(line)
  }

  private decodeLine(rest: Uint8Array): string {
    if (this.pending.length > 0) this.pending.append(rest)
    const line = decoder.decode(this.pending.length > 0 ? this.pending.take() : rest)
    const isMarked = this.isFirstLine && line.startsWith(BYTE_ORDER_MARK)
    this.isFirstLine = false
    return isMarked ? line.slice(1) : line
  }

  private readField(line: string): void {
    const colon = line.indexOf(':')
    const name = colon < 0 ? line : line.slice(0, colon)
    const start = line.charAt(colon + 1) === ' ' ? colon + 2 : colon + 1
    const value = colon < 0 ? '' : line.slice(start)
    if (name === 'event') this.eventName = value
    if (name !== 'data') return
    this.dataLines.push(value)
    // At least 1, so that empty data lines count too.
    this.dataBytes += value.length + 1
  }

  private endEvent(events: ServerEvent[]): void {
    if (this.dataLines.length > 0)
      events.push({ event: this.eventName, data: this.dataLines.join('\n') })
    this.dataLines = []
    this.dataBytes = 0
    this.eventName = ''
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
