import { EventParser, type ServerEvent } from '#attestation/dialects/chat/event-parser.ts'
import { isJsonArray, isJsonObject, type JsonObject, memberAt } from '#attestation/json/value.ts'
import { readReason } from '#enclave/protocol/refusal.ts'
import type { NodeDialect } from '../nodes/protocol/dialects.ts'
import { FRAME_BYTES_MAX, parseJson } from '../nodes/protocol/frames.ts'
import { backendErrorOf, statesError } from './backend-error.ts'

/** JSON text (src/nodes/runs/read-event.ts). */
type DialectChunk = { readonly text: string }

/** The size of a frame without its chunk is smaller. */
const ENVELOPE_BYTES = 4_096
/** UTF-16 units. Any piece of this length fits into a frame. */
const PIECE_LENGTH = 128 * 1024

/**
 * Names and data of the events stay unchanged. An event without data is left out: the standard
 * says so, and some backends send it to keep the connection open. `[DONE]` ends completions alone,
 * and is added if it is missing after a finish_reason. Throws BackendError for an error that comes
 * before any part of the answer.
 */
export async function* readDialectEvents(
  dialect: NodeDialect,
  packets: AsyncIterable<Uint8Array>,
  eventBytesMax: number,
): AsyncGenerator<readonly DialectChunk[]> {
  const parser = new EventParser({ eventBytesMax, errorLines: true })
  const answer = new DialectAnswer(dialect)
  for await (const packet of packets) {
    const chunks = answer.chunksOf(parser.push(packet))
    if (chunks.length > 0) yield chunks
  }
  yield answer.chunksOf(parser.end())
  yield answer.end()
}

const END_MARK = '[DONE]'

class DialectAnswer {
  private readonly hasEndMark: boolean
  private hasContent = false
  private isFinished = false
  private isEnded = false

  constructor(dialect: NodeDialect) {
    this.hasEndMark = dialect === 'completions'
  }

  chunksOf(events: readonly ServerEvent[]): readonly DialectChunk[] {
    return events.flatMap(({ event, data }) => {
      if (data.trim() === '') return []
      if (data.trim() === END_MARK) {
        this.isEnded = true
        return this.hasEndMark ? [encodeEvent(event, data)] : []
      }
      // Only the events before the first part of an answer are parsed.
      if (!this.hasContent) this.readStart(event, data)
      this.isFinished ||= this.hasEndMark && FINISHED.test(data)
      const chunk = encodeEvent(event, data)
      return fitsFrame(chunk) ? [chunk] : splitEvent(event, data)
    })
  }

  end(): readonly DialectChunk[] {
    const isLost = this.hasEndMark && this.isFinished && !this.isEnded
    return isLost ? [encodeEvent('', END_MARK)] : []
  }

  private readStart(event: string, data: string): void {
    const value = parseJson(data)
    if (event === 'error') throw backendErrorOf(readReason(value ?? data), true)
    if (!isJsonObject(value)) return
    refuseError(value)
    this.hasContent = !BEGINNING.test(String(value.type ?? event))
  }
}

const FINISHED = /"finish_reason"\s*:\s*"/
/** Events that come before any part of an answer. */
const BEGINNING = /^(ping|keepalive|message_start|response\.(created|queued|in_progress))$/

/** Throws BackendError if the value only states an error. */
function refuseError(data: JsonObject): void {
  const { type = null, choices, output } = data
  const failed = type === 'response.failed' ? memberAt(data, 'response', 'error') : undefined
  const isAnswer = isJsonArray(choices) || isJsonArray(output)
  if (failed !== undefined && failed !== null)
    throw backendErrorOf(readReason({ error: failed }), true)
  if (type === 'error' || (typeof type !== 'string' && statesError(data, isAnswer)))
    throw backendErrorOf(readReason(data), true)
}

function encodeEvent(event: string, data: string): DialectChunk {
  return { text: JSON.stringify({ event, data }) }
}

function fitsFrame({ text }: DialectChunk): boolean {
  return text.length <= PIECE_LENGTH || Buffer.byteLength(text) + ENVELOPE_BYTES <= FRAME_BYTES_MAX
}

/**
 * Some backends repeat the whole answer in one event, which can be too long for a frame
 * (https://github.com/zendev-sh/goai/issues/70).
 */
function splitEvent(event: string, data: string): readonly DialectChunk[] {
  return [...piecesOf(data)].map(({ piece, is_last }) => ({
    text: JSON.stringify({ event, piece, is_last }),
  }))
}

/** Splits the text of a whole answer, because the whole text can be too long for a frame. */
export function* splitBody(bytes: Uint8Array): Generator<readonly DialectChunk[]> {
  for (const { piece: body, is_last } of piecesOf(Buffer.from(bytes).toString('utf8')))
    yield [{ text: JSON.stringify({ body, is_last }) }]
}

function* piecesOf(text: string): Generator<{ readonly piece: string; readonly is_last: boolean }> {
  let start = 0
  do {
    const piece = text.slice(start, start + PIECE_LENGTH)
    start += PIECE_LENGTH
    yield { piece, is_last: start >= text.length }
  } while (start < text.length)
}
