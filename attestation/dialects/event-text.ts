import { encodeUtf8 } from '../bytes.ts'
import { FormatError } from '../errors.ts'
import { parseExactJson } from '../json/parse-strict.ts'
import { isJsonObject } from '../json/value.ts'
import type { DialectEvent } from './dialect.ts'

/**
 * Reads the text of one event, whose lines end with a line feed: a name and one line of data. Null
 * for a comment. Accepts only lines that every reader of server-sent events reads in the same way.
 * Throws FormatError `invalid_stream`, and JsonError for data that are not JSON with one meaning.
 * `onData` gets the data before they are parsed.
 */
export function readNamedEvent(
  text: string,
  onData: (data: string) => void = () => undefined,
): DialectEvent | null {
  const lines = text.split('\n').filter((line) => line !== '')
  const shown = lines.filter((line) => !UNSHOWN_LINE.test(line))
  if (shown.length === 0) return null
  const [, event] = /^event: ?([a-z._]+)$/.exec(shown[0] ?? '') ?? []
  const [, data] = /^data: ?([\s\S]*)$/.exec(shown[1] ?? '') ?? []
  if (event === undefined || data === undefined || shown.length > 2)
    throw invalid('expected each event to be one line with its name, and one line of data')
  onData(data)
  const json = parseExactJson(encodeUtf8(data))
  if (!isJsonObject(json)) throw invalid('expected the data of every event to be an object')
  return { event, data: json }
}

/**
 * Reads all events of a kept stream, in their order, without comments. Throws as readNamedEvent,
 * also for bytes that are not UTF-8. Does NOT check the events: see readKeptStream.
 */
export function splitNamedEvents(stream: Uint8Array): readonly DialectEvent[] {
  return decode(stream)
    .replaceAll(/\r\n?/g, '\n')
    .split('\n\n')
    .flatMap((text) => readNamedEvent(text) ?? [])
}

/** Keeps byte order marks: some readers drop one at the beginning of a line. */
function decode(stream: Uint8Array): string {
  try {
    return new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(stream)
  } catch {
    throw invalid('expected the stream to be UTF-8')
  }
}

function invalid(message: string): FormatError {
  return new FormatError('invalid_stream', message)
}

/** Lines that no reader shows, in ASCII: some readers end a line at other characters. */
const UNSHOWN_LINE = /^(?:id|retry)?:[\x20-\x7e]*$/
