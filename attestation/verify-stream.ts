import { FormatError } from './errors.ts'
import { isJsonObject, type Json, type JsonObject, memberOf } from './json/value.ts'
import { type RecordOptions, type RecordReport, verifyRecord } from './verify-record.ts'

/**
 * Checks a kept stream as verifyRecord checks a create response. `chunks`: the data of all events
 * except `[DONE]`, in order, each parsed with parseExactJson. The last carries the proof. Throws
 * FormatError `invalid_stream` when there is no such stream; any other fault fails a check.
 *
 * Does NOT prove more than verifyRecord does, nor that nothing else was shown. For that, the code
 * that splits the text into events must refuse events with a name, a missing `[DONE]`, and anything
 * after it (splitEvents does).
 *
 * @example
 * const chunks = splitEvents(streamFile).map((data) => parseExactJson(encodeUtf8(data)))
 * const { ok } = verifyStream(chunks, { request: parseStrictJson(requestFile) })
 * console.log(ok) // true
 */
export function verifyStream(
  chunks: readonly Json[],
  options: RecordOptions & { readonly request: Json },
): RecordReport {
  const objects = chunks.filter(isJsonObject)
  if (objects.length < chunks.length) throw invalid('expected every chunk to be a JSON object')
  return verifyRecord(proofOf(objects), { ...options, chunks: objects })
}

/** The chunk with the proof, which is the last chunk. */
function proofOf(chunks: readonly JsonObject[]): JsonObject {
  const last = chunks.at(-1)
  if (last === undefined || memberOf(last, 'receipt') === undefined)
    throw invalid('expected the last chunk before [DONE] to carry the proof')
  return last
}

function invalid(message: string): FormatError {
  return new FormatError('invalid_stream', message)
}

/**
 * The data of a kept stream's events, in order, without the final `[DONE]`. Accepts only lines that
 * every reader of server-sent events reads in the same way: lines of `data`, one per event, and
 * comments, `id` and `retry` in plain ASCII. Throws FormatError `invalid_stream` for an event with
 * a name (some readers drop it), any other line, a stream that does not end with `[DONE]`, and
 * bytes that are not UTF-8.
 */
export function splitEvents(stream: Uint8Array): readonly string[] {
  const data = decode(stream).replaceAll(/\r\n?/g, '\n').split('\n\n').flatMap(readEvent)
  const end = data.indexOf('[DONE]')
  if (end < 0) throw invalid('the stream is not whole: expected it to end with [DONE]')
  if (end < data.length - 1) throw invalid('expected nothing after [DONE]')
  return data.slice(0, end)
}

/**
 * Keeps byte order marks: some readers drop one at the beginning of every line, and use that line.
 */
function decode(stream: Uint8Array): string {
  try {
    return new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(stream)
  } catch {
    throw invalid('expected the stream to be UTF-8')
  }
}

/**
 * The data of one event, whose lines end with a line feed: one text, or an empty array for a
 * comment. Throws FormatError `invalid_stream` as splitEvents does.
 */
export function readEvent(text: string): readonly string[] {
  // A regular expression with `.` and `$` would also split at U+2028, which JSON does not escape.
  const lines = text.split('\n').filter((line) => line !== '')
  if (lines.some((line) => /^event: ?error/.test(line)))
    throw invalid('the stream ends with an error: its record, if any, is in the history')
  if (lines.some((line) => line === 'event' || line.startsWith('event:')))
    throw invalid('expected events without a name, which some readers drop')
  const data = lines.filter((line) => line.startsWith('data:'))
  if (!lines.every((line) => line.startsWith('data:') || UNSHOWN_LINE.test(line)))
    throw invalid('expected no lines but data, and comments, id and retry of plain ASCII')
  if (data.length > 1) throw invalid('expected one line of data in each event')
  return data.map((line) => line.replace(/^data: ?/, ''))
}

/** Lines that no reader shows, in ASCII: some readers end a line at other characters. */
const UNSHOWN_LINE = /^(?:id|retry)?:[\x20-\x7e]*$/
