/** Longest event of a backend's stream, bytes: what fits a frame to the gateway (frames.ts) is far below. */
export const EVENT_BYTES_MAX = 1024 * 1024

/** An event of the stream goes over the limit. The stream cannot be read on. */
export class EventTooLargeError extends Error {
  override readonly name = 'EventTooLargeError'
}

/**
 * Gives the data of server-sent events (WHATWG HTML, section 9.2.6) out of bytes, whatever the packets are: lines end with
 * LF, CRLF or CR, and are decoded once they are whole, so no character is cut. Fields other than `data` are skipped, but
 * for `error`, as llama.cpp names the line that reports a failure: it is taken as data.
 *
 * Unlike the standard, `end` also gives an event that no blank line ends, because servers leave it out.
 */
export class EventParser {
  private readonly eventBytesMax: number
  /** Parts of a line whose end is in a later packet. */
  private parts: Uint8Array[] = []
  private partsBytes = 0
  private dataLines: string[] = []
  private dataBytes = 0
  /** The line before ended with CR: an LF that follows belongs to it. */
  private skipsLineFeed = false

  constructor({ eventBytesMax = EVENT_BYTES_MAX }: { readonly eventBytesMax?: number } = {}) {
    this.eventBytesMax = eventBytesMax
  }

  /**
   * Takes the next bytes and gives the data of the events they complete. Throws EventTooLargeError; the events before it are
   * in `events` then, which is what it gives.
   */
  push(bytes: Uint8Array, events: string[] = []): readonly string[] {
    let start = this.skipsLineFeed && bytes[0] === LINE_FEED ? 1 : 0
    if (bytes.length > 0) this.skipsLineFeed = false
    let feed = bytes.indexOf(LINE_FEED, start)
    let carriage = bytes.indexOf(CARRIAGE_RETURN, start)
    while (feed >= 0 || carriage >= 0) {
      const isFeed = feed >= 0 && (carriage < 0 || feed < carriage)
      const end = isFeed ? feed : carriage
      this.endLine(bytes.subarray(start, end), events)
      start = !isFeed && feed === end + 1 ? end + 2 : end + 1
      this.skipsLineFeed = !isFeed && start === bytes.length && feed !== end + 1
      if (feed >= 0 && feed < start) feed = bytes.indexOf(LINE_FEED, start)
      if (carriage >= 0 && carriage < start) carriage = bytes.indexOf(CARRIAGE_RETURN, start)
    }
    if (start < bytes.length) this.keep(bytes.subarray(start))
    return events
  }

  /** Says that the stream ended cleanly, and gives the data of the event that was pending, if any. Throws as `push`. */
  end(events: string[] = []): readonly string[] {
    if (this.partsBytes > 0) this.endLine(NO_BYTES, events)
    this.endEvent(events)
    return events
  }

  private keep(rest: Uint8Array): void {
    this.checkSize(rest.length)
    this.parts.push(rest)
    this.partsBytes += rest.length
    // One-byte packets cost memory for their bytes only, not for a list of packets.
    if (this.parts.length > PARTS_MAX) this.parts = [Buffer.concat(this.parts)]
  }

  private endLine(rest: Uint8Array, events: string[]): void {
    this.checkSize(rest.length)
    const line = decoder.decode(this.partsBytes > 0 ? Buffer.concat([...this.parts, rest]) : rest)
    this.parts = []
    this.partsBytes = 0
    if (line === '') this.endEvent(events)
    else this.readField(line)
  }

  private checkSize(moreBytes: number): void {
    if (this.dataBytes + this.partsBytes + moreBytes > this.eventBytesMax)
      throw new EventTooLargeError(`expected events of at most ${this.eventBytesMax} bytes`)
  }

  private readField(line: string): void {
    const match = FIELD.exec(line)
    if (match === null) return
    const value = line.slice(match[0].length)
    this.dataLines.push(value)
    // At least 1, so that empty data lines without end are bounded too.
    this.dataBytes += value.length + 1
  }

  private endEvent(events: string[]): void {
    if (this.dataLines.length > 0) events.push(this.dataLines.join('\n'))
    this.dataLines = []
    this.dataBytes = 0
  }
}

const LINE_FEED = 0x0a
const CARRIAGE_RETURN = 0x0d
const NO_BYTES = new Uint8Array()
const PARTS_MAX = 64
/** A byte order mark may stand before the first line: the decoder drops it. */
const FIELD = /^(?:data|error)(?:: ?|$)/

const decoder = new TextDecoder('utf-8')
