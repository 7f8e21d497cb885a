import { invalidStream, readLines, splitBlocks } from './dialects/chat/kept-events.ts'
import type { DialectEvent } from './dialects/dialect.ts'
import { dialectOfRequest } from './dialects/dialects.ts'
import { readKeptStream } from './dialects/kept-stream.ts'
import { isJsonObject, type Json, type JsonObject, memberOf } from './json/value.ts'
import type { RecordOptions } from './record-subject.ts'
import { type RecordReport, verifyRecord } from './verify-record.ts'

/**
 * Checks a kept stream as verifyRecord checks a create response. `chunks`: the data of all events
 * except `[DONE]`, in order, each parsed with parseExactJson. The last carries the proof. Throws
 * FormatError `invalid_stream` for other chunks; any other fault fails a check.
 *
 * Does NOT prove more than verifyRecord. Proves that the caller saw only these chunks only if the
 * code that splits the text into events refuses events with a name, a missing `[DONE]`, and
 * anything after `[DONE]` (as splitEvents does).
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
  if (objects.length < chunks.length)
    throw invalidStream('expected every chunk to be a JSON object')
  return verifyRecord(proofOf(objects), { ...options, chunks: objects })
}

/**
 * Checks a kept stream of Responses or Messages as verifyStream checks a chat stream. `events`: all
 * events of the stream, in order (splitNamedEvents). Throws FormatError as readKeptStream does for
 * events that no enclave sends in this form; any other fault fails a check.
 *
 * Does NOT prove more than verifyRecord. Does NOT prove that the caller saw only these events.
 *
 * @example
 * const events = splitNamedEvents(streamFile)
 * const { ok } = verifyEventStream(events, { request: parseStrictJson(requestFile) })
 * console.log(ok) // true
 */
export function verifyEventStream(
  events: readonly DialectEvent[],
  options: RecordOptions & { readonly request: Json },
): RecordReport {
  const dialect = dialectOfRequest(options.request)
  if (dialect === 'chat') throw invalidStream('expected a request of Responses or Messages')
  readKeptStream(dialect, events)
  return verifyRecord(null, { ...options, events })
}

function proofOf(chunks: readonly JsonObject[]): JsonObject {
  const last = chunks.at(-1)
  if (last === undefined || memberOf(last, 'receipt') === undefined)
    throw invalidStream('expected the last chunk before [DONE] to carry the proof')
  return last
}

/**
 * The data of a kept stream's events, in order, without the final `[DONE]`. Accepts only lines that
 * every reader of server-sent events reads in the same way: lines of `data`, one per event, and
 * comments, `id` and `retry` in plain ASCII. Throws FormatError `invalid_stream` for an event with
 * a name (some readers drop it), any other line, a stream that does not end with `[DONE]`, and
 * bytes that are not UTF-8.
 */
export function splitEvents(stream: Uint8Array): readonly string[] {
  const data = splitBlocks(stream).flatMap(readEvent)
  const end = data.indexOf('[DONE]')
  if (end < 0) throw invalidStream('the stream is not whole: expected it to end with [DONE]')
  if (end < data.length - 1) throw invalidStream('expected nothing after [DONE]')
  return data.slice(0, end)
}

/**
 * The data of one event, whose lines end with a line feed: one text, or an empty array for a
 * comment. Throws FormatError `invalid_stream` as splitEvents does.
 */
export function readEvent(text: string): readonly string[] {
  const { names, data } = readLines(text)
  if (names.some((name) => name.startsWith('error')))
    throw invalidStream('the stream ends with an error: its record, if any, is in the history')
  if (names.length > 0)
    throw invalidStream('expected events without a name, which some readers drop')
  return data === null ? [] : [data]
}
