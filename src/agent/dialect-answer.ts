import { EventParser } from '../../attestation/dialects/chat/event-parser.ts'

/** A chunk of a frame, as JSON text (src/nodes/runs/read-event.ts). */
type DialectChunk = { readonly text: string }

/** Longest event, bytes. A frame must hold it. */
const EVENT_BYTES_MAX = 1024 * 1024
/** Length of a piece of a whole answer, UTF-16 units. A frame holds any such piece. */
const PIECE_LENGTH = 128 * 1024

/** Reads the events of an answer in another dialect. Their names and data stay unchanged. */
export async function* readDialectEvents(
  packets: AsyncIterable<Uint8Array>,
): AsyncGenerator<readonly DialectChunk[]> {
  const parser = new EventParser({ eventBytesMax: EVENT_BYTES_MAX, errorLines: true })
  const chunksOf = (events: ReturnType<EventParser['push']>) =>
    events.map(({ event, data }) => ({ text: JSON.stringify({ event, data }) }))
  for await (const packet of packets) {
    const chunks = chunksOf(parser.push(packet))
    if (chunks.length > 0) yield chunks
  }
  yield chunksOf(parser.end())
}

/** Splits the text of a whole answer. */
export function* splitBody(bytes: Uint8Array): Generator<readonly DialectChunk[]> {
  const text = Buffer.from(bytes).toString('utf8')
  let start = 0
  do {
    const body = text.slice(start, start + PIECE_LENGTH)
    start += PIECE_LENGTH
    yield [{ text: JSON.stringify({ body, is_last: start >= text.length }) }]
  } while (start < text.length)
}
