import { EventParser } from '#attestation/dialects/chat/event-parser.ts'

/** JSON text (src/nodes/runs/read-event.ts). */
type DialectChunk = { readonly text: string }

/** An event must fit into a frame. */
const EVENT_BYTES_MAX = 1024 * 1024
/** UTF-16 units. Any piece of this length fits into a frame. */
const PIECE_LENGTH = 128 * 1024

/**
 * Names and data of the events stay unchanged. An event without data is left out: the standard
 * says so, and some backends send it to keep the connection open.
 */
export async function* readDialectEvents(
  packets: AsyncIterable<Uint8Array>,
): AsyncGenerator<readonly DialectChunk[]> {
  const parser = new EventParser({ eventBytesMax: EVENT_BYTES_MAX, errorLines: true })
  const chunksOf = (events: ReturnType<EventParser['push']>) =>
    events
      .filter(({ data }) => data.trim() !== '')
      .map(({ event, data }) => ({ text: JSON.stringify({ event, data }) }))
  for await (const packet of packets) {
    const chunks = chunksOf(parser.push(packet))
    if (chunks.length > 0) yield chunks
  }
  yield chunksOf(parser.end())
}

/** Splits the text of a whole answer, because the whole text can be too long for a frame. */
export function* splitBody(bytes: Uint8Array): Generator<readonly DialectChunk[]> {
  const text = Buffer.from(bytes).toString('utf8')
  let start = 0
  do {
    const body = text.slice(start, start + PIECE_LENGTH)
    start += PIECE_LENGTH
    yield [{ text: JSON.stringify({ body, is_last: start >= text.length }) }]
  } while (start < text.length)
}
