import type { ServerEvent } from '#attestation/dialects/chat/event-parser.ts'
import { type DialectEvent, hashedLine, type StreamReader } from '#attestation/dialects/dialect.ts'
import { FormatError } from '#attestation/errors.ts'
import { canonicalizeJson } from '#attestation/json/canonical.ts'
import { makeWellFormed, parseUnsettled } from '#attestation/json/parse-lenient.ts'
import { isJsonObject, type JsonObject } from '#attestation/json/value.ts'
import { CallFault, refusedFault, statedFault } from '../call-fault.ts'
import type { AnswerFallback } from '../calls/parse-answer.ts'
import { errorIn, readReason } from '../protocol/refusal.ts'
import type { AnswerStream, StreamParts } from './answer-stream.ts'
import { CutCharacters } from './cut-characters.ts'

/** A streamed answer of a dialect with named events. */
export class EventStream implements AnswerStream {
  private readonly reader: StreamReader
  private readonly parts: StreamParts
  private readonly fallback: AnswerFallback
  private readonly cut = new CutCharacters()

  constructor(reader: StreamReader, parts: StreamParts, fallback: AnswerFallback) {
    this.reader = reader
    this.parts = parts
    this.fallback = fallback
  }

  get isDone(): boolean {
    return this.reader.isEnded
  }

  get assembly(): unknown {
    return [this.reader.response(), this.reader.waiting]
  }

  read({ event, data }: ServerEvent): void {
    const { reader, parts } = this
    const content = data.trim()
    // Some servers end these streams with [DONE], like chat completions.
    if (content === '[DONE]') return
    parts.memory.admit(content)
    const { hasGiven } = parts.output
    try {
      const parsed = parseEventData(content, event)
      if (mayBeError(event, parsed))
        refuseError(event, makeWellFormed(parsed) as JsonObject, hasGiven)
      if (reader.isLast(String(parsed.type))) parts.memory.checkAssembly()
      const joined = this.cut.join(parsed)
      // The name is that of the event that arrived, which is the last.
      for (const [at, data] of joined.entries())
        this.give({ event: at === joined.length - 1 ? event : '', data })
    } catch (error) {
      if (!(error instanceof FormatError)) throw error
      if (!hasGiven) parts.output.discard()
      if (error.code !== 'upstream_failure') throw refusedFault(error, this.fallback, content)
      const words = `The provider broke off with an error: ${error.message}`
      throw new CallFault('provider_error', words)
    }
    if (reader.isEnded) parts.output.conclude()
  }

  private give({ event, data }: DialectEvent): void {
    const { reader } = this
    try {
      reader.read({ event, data: makeWellFormed(data) as JsonObject })
    } finally {
      // The response covers also what the reader gave before it refused the event.
      this.giveAll()
    }
  }

  private giveAll(): void {
    const { reader, parts } = this
    const { given } = reader
    for (const [at, { event: name, data: settled }] of given.entries()) {
      const text = canonicalizeJson(settled)
      const mayBeLast = reader.isEnded && at === given.length - 1
      parts.output.give(hashedLine(name, text), { event: name, data: text, mayBeLast })
    }
  }

  end(): void {
    throw new CallFault('provider_error', 'The provider ended its answer before it was complete.')
  }

  response(): JsonObject {
    return this.reader.response()
  }
}

/** Returns the JSON object in an event. Throws CallFault for an event `error` with its text. */
export function parseEventData(data: string, event = ''): JsonObject {
  try {
    const value = parseUnsettled(data)
    if (isJsonObject(value)) return value
  } catch (error) {
    if (!(error instanceof FormatError)) throw error
  }
  if (event === 'error') throw statedFault(readReason(data), { in_stream: true })
  throw new FormatError('invalid_form', 'expected an event to be a JSON object')
}

/** Events with a type of their own can have members with words that are no error. */
function mayBeError(event: string, { type, object }: JsonObject): boolean {
  return [event, object, type].includes('error') || typeof type !== 'string'
}

/** Throws CallFault for an event that only reports an error. */
export function refuseError(event: string, data: JsonObject, isBegun: boolean): void {
  const reason = event === 'error' ? readReason(data) : errorIn(data, isBegun)
  if (reason !== null) throw statedFault(reason, { in_stream: true })
}
