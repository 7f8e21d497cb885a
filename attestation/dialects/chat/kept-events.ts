import { FormatError } from '../../errors.ts'

type EventLines = {
  /** Values of the lines `event`, in order. */
  readonly names: readonly string[]
  /** Null if the event has no line `data`. */
  readonly data: string | null
  /** True if the line `data` stands before a line `event`. */
  readonly isDataFirst: boolean
}

export function invalidStream(message: string): FormatError {
  return new FormatError('invalid_stream', message)
}

/**
 * Splits a kept stream into the texts of its events. Throws FormatError `invalid_stream` if not
 * UTF-8.
 */
export function splitBlocks(stream: Uint8Array): readonly string[] {
  return decode(stream).replaceAll(/\r\n?/g, '\n').split('\n\n')
}

/** Keeps byte order marks, so that readLines refuses them: some readers skip them in any line. */
function decode(stream: Uint8Array): string {
  try {
    return new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(stream)
  } catch {
    throw invalidStream('expected the stream to be UTF-8')
  }
}

/**
 * Reads the text of one event, whose lines end with a line feed. Accepts only names, one line of
 * data, and (in plain ASCII) comments, `id` and `retry`: all readers of server-sent events read
 * these lines in the same way. Throws FormatError `invalid_stream` for other lines.
 */
export function readLines(text: string): EventLines {
  // A regular expression with `.` and `$` would also split at U+2028, which JSON does not escape.
  const lines = text.split('\n').filter((line) => line !== '')
  const fields = lines.filter((line) => !UNSHOWN_LINE.test(line))
  const names = fields.filter((line) => line === 'event' || line.startsWith('event:'))
  const data = fields.filter((line) => line.startsWith('data:'))
  if (names.length + data.length < fields.length)
    throw invalidStream('expected no lines but data, and comments, id and retry of plain ASCII')
  if (data.length > 1) throw invalidStream('expected one line of data in each event')
  return {
    names: names.map((line) => line.replace(/^event:? ?/, '')),
    data: data[0]?.replace(/^data: ?/, '') ?? null,
    isDataFirst: fields[0]?.startsWith('data:') === true,
  }
}

/** Lines that no reader shows. Only ASCII, because some readers end a line at other characters. */
const UNSHOWN_LINE = /^(?:id|retry)?:[\x20-\x7e]*$/
