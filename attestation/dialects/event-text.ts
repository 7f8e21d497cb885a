import { encodeUtf8 } from '../bytes.ts'
import { parseExactJson } from '../json/parse-strict.ts'
import { isJsonObject } from '../json/value.ts'
import { invalidStream, readLines, splitBlocks } from './chat/kept-events.ts'
import { type DialectEvent, eventNameOf } from './dialect.ts'

/**
 * The events of a kept stream of Responses or Messages, in order. Accepts only lines that every
 * reader of server-sent events reads in the same way: for each event, one line `event`, then one
 * line `data` with a JSON object; and comments, `id` and `retry` in plain ASCII. Throws FormatError
 * `invalid_stream` for other lines and for bytes that are not UTF-8; `changed_type` for a name that
 * is not the type of its event; and as parseExactJson does. Does NOT check that the stream is whole
 * (verifyEventStream does).
 *
 * @example
 * const events = splitNamedEvents(encodeUtf8('event: ping\ndata: {"type":"ping"}\n\n'))
 * console.log(events[0].event) // ping
 */
export function splitNamedEvents(stream: Uint8Array): readonly DialectEvent[] {
  return splitBlocks(stream).flatMap((text) => readNamedEvent(text) ?? [])
}

/**
 * The event in a text whose lines end with a line feed. Null for a comment. `onData` gets the data
 * before they are parsed. Throws FormatError as splitNamedEvents does.
 */
export function readNamedEvent(
  text: string,
  onData: (data: string) => void = () => undefined,
): DialectEvent | null {
  const { names, data: content, isDataFirst } = readLines(text)
  const [event, ...others] = names
  if (event === undefined && content === null) return null
  if (event === undefined || event === '' || others.length > 0 || content === null || isDataFirst)
    throw invalidStream('expected of each event one line with its name, then one with its data')
  onData(content)
  const data = parseExactJson(encodeUtf8(content))
  if (!isJsonObject(data))
    throw invalidStream('expected the data of each event to be a JSON object')
  const named = { event, data }
  eventNameOf(named)
  return named
}
