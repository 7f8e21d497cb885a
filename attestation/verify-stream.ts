import { FormatError } from './errors.ts'
import { isJsonObject, type Json, type JsonObject, memberOf } from './json/value.ts'
import { type RecordOptions, type RecordReport, verifyRecord } from './verify-record.ts'

/**
 * Checks a kept stream as verifyRecord checks a create response. `chunks`: the data of its events,
 * in order, all of them but `[DONE]`, each read with parseExactJson; the last carries the proof.
 * Throws FormatError `invalid_stream` when there is no such stream; whatever else is wrong fails a
 * check.
 *
 * Does NOT prove more than verifyRecord does, nor that nothing else was shown. For that, whoever
 * splits the text into events must refuse events with a name, a missing `[DONE]`, and anything
 * after it (splitEvents does).
 */
export function verifyStream(
  chunks: readonly Json[],
  options: RecordOptions & { readonly request: Json },
): RecordReport {
  const objects = chunks.filter(isJsonObject)
  if (objects.length < chunks.length) throw invalid('expected every chunk to be a JSON object')
  return verifyRecord(proofOf(objects), { ...options, chunks: objects })
}

/** The chunk with the proof, which is the last one and the only one. */
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
 * The data of a kept stream's events, in order, without the `[DONE]` that ends them. Accepts only
 * what every reader of server-sent events reads alike. Throws FormatError `invalid_stream`: for an
 * event with a name, which some readers drop; an error event; a stream that does not end with
 * `[DONE]`; anything after it; bytes that are not UTF-8.
 */
export function splitEvents(stream: Uint8Array): readonly string[] {
  const data = decode(stream).replaceAll(/\r\n?/g, '\n').split('\n\n').flatMap(readEvent)
  const end = data.indexOf('[DONE]')
  if (end < 0) throw invalid('the stream is not whole: expected it to end with [DONE]')
  if (end < data.length - 1) throw invalid('expected nothing after [DONE]')
  return data.slice(0, end)
}

function decode(stream: Uint8Array): string {
  try {
    return new TextDecoder('utf-8', { fatal: true }).decode(stream)
  } catch {
    throw invalid('expected the stream to be UTF-8')
  }
}

function readEvent(text: string): readonly string[] {
  // Not by expressions with `.` and `$`: they would also break lines at U+2028, which JSON leaves
  // as it is.
  const lines = text.split('\n')
  if (lines.some((line) => /^event: ?error/.test(line)))
    throw invalid('the stream ends with an error: its record, if any, is in the history')
  if (lines.some((line) => line === 'event' || line.startsWith('event:')))
    throw invalid('expected events without a name, which some readers drop')
  const data = lines.filter((line) => line.startsWith('data:')).map((line) => line.replace(/^data: ?/, ''))
  return data.length === 0 ? [] : [data.join('\n')]
}
