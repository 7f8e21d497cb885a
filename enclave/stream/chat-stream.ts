import {
  addChunk,
  addText,
  emptyAssembly,
  finishAssembly,
} from '#attestation/dialects/chat/assemble-completion.ts'
import type { ServerEvent } from '#attestation/dialects/chat/event-parser.ts'
import {
  type ChunkState,
  closingChunk,
  finishChunks,
  isFinished,
  NO_CHUNKS,
  normalizeChunk,
  type StreamTerms,
} from '#attestation/dialects/chat/normalize-chunk.ts'
import { FormatError } from '#attestation/errors.ts'
import { canonicalizeJson } from '#attestation/json/canonical.ts'
import { makeWellFormed } from '#attestation/json/parse-lenient.ts'
import { isJsonArray, isJsonObject, type JsonObject } from '#attestation/json/value.ts'
import { CallFault, refusedFault } from '../call-fault.ts'
import type { AnswerFallback } from '../calls/parse-answer.ts'
import type { AnswerStream, StreamParts } from './answer-stream.ts'
import { parseEventData, refuseError } from './event-stream.ts'
import { makeTextTemplate, matchText, PADDING, type TextTemplate } from './text-template.ts'

/**
 * After this many failures, the stream gets no more templates: its chunks differ by more than their
 * text, and making a template takes as long as parsing an event.
 */
const TEMPLATES_UNUSED_MAX = 8

type ChatTerms = StreamTerms & { readonly fallback: AnswerFallback }

/**
 * A streamed chat completion. A chunk with a finish_reason may be the last. After `[DONE]`, the
 * answer is complete if every choice that began has its finish_reason. Without `[DONE]`, the body
 * must end cleanly, and every choice that was asked for must have begun and finished.
 */
export class ChatStream implements AnswerStream {
  readonly assembly = emptyAssembly()
  isDone = false
  private readonly terms: ChatTerms
  private readonly parts: StreamParts
  private state: ChunkState = NO_CHUNKS
  /** Template made from the previous event. Null if the next event cannot match it. */
  private template: TextTemplate | null = null
  /** Number of events in a row without a template, or with a template that did not match. */
  private templatesUnused = 0

  constructor(terms: ChatTerms, parts: StreamParts) {
    this.terms = terms
    this.parts = parts
  }

  response(): JsonObject {
    return finishAssembly(this.assembly)
  }

  read({ event, data }: ServerEvent): void {
    const content = data.trim()
    if (event === '' && this.readText(content)) return
    this.template = null
    if (content === '[DONE]') {
      this.conclude()
      return
    }
    this.parts.memory.admit(content)
    const given = this.readChunk(event, content)
    if (given === null || this.templatesUnused >= TEMPLATES_UNUSED_MAX) return
    this.template = this.learn(content, given)
    if (this.template === null) this.templatesUnused += 1
  }

  /** Some providers end a stream without [DONE]. */
  end(): void {
    const { choicesAsked } = this.terms
    if (this.state.choices.size < Math.max(1, choicesAsked) || !isFinished(this.state))
      throw providerError('The provider ended its answer before it was complete.')
    this.conclude()
  }

  /**
   * Passes on an event that differs from the previous event only in its text. Returns false for any
   * other event.
   */
  private readText(data: string): boolean {
    const { template } = this
    if (template === null) return false
    const match = matchText(template, data)
    if (match === null) {
      this.templatesUnused += 1
      return false
    }
    this.templatesUnused = 0
    this.parts.memory.admit(data, template.size)
    addText(this.assembly, template.index, match.text)
    if (match.padding !== null) this.assembly.members.set(PADDING, match.padding)
    this.giveText(match.given)
    return true
  }

  /** Makes a template of an event that was passed on as `given`. Null if no template fits. */
  private learn(data: string, given: string): TextTemplate | null {
    const template = makeTextTemplate(data, (marked) => this.giveMarked(marked))
    return template !== null && matchText(template, data)?.given === given ? template : null
  }

  /** Returns the chunk for an event with MARKS as its texts. Null unless there is exactly one. */
  private giveMarked(marked: string): JsonObject | null {
    try {
      const step = normalizeChunk(this.terms, this.state, parseEventData(marked))
      const [chunk, ...others] = step.chunks
      if (chunk === undefined || others.length > 0) return null
      return this.state.choices === step.state.choices
        ? (makeWellFormed(chunk) as JsonObject)
        : null
    } catch (error) {
      if (error instanceof FormatError) return null
      throw error
    }
  }

  /** Returns the text of a single chunk that was passed on and is not held, otherwise null. */
  private readChunk(event: string, data: string): string | null {
    const { output } = this.parts
    const { hasGiven } = output
    try {
      const chunk = parseEventData(data, event)
      refuseError(event, chunk, hasGiven)
      const { state, chunks } = normalizeChunk(this.terms, this.state, chunk)
      const given = chunks.map((item) => this.give(makeWellFormed(item) as JsonObject))
      this.state = state
      return given.length === 1 && !output.isHolding ? (given[0] ?? null) : null
    } catch (error) {
      if (!(error instanceof FormatError)) throw error
      // Before the first complete chunk, the call can still fail without a record.
      if (!hasGiven) output.discard()
      throw refusedFault(error, this.terms.fallback, data)
    }
  }

  /** Adds a chunk to the record and gives it out. Does neither if it throws FormatError. */
  private give(chunk: JsonObject, mayBeLast = hasFinishReason(chunk)): string {
    addChunk(this.assembly, chunk)
    const text = canonicalizeJson(chunk)
    this.giveText(text, mayBeLast)
    return text
  }

  private giveText(data: string, mayBeLast = false): void {
    this.parts.output.give(`${data}\n`, { event: '', data, mayBeLast })
  }

  private conclude(): void {
    const { state, terms } = this
    const { output, memory } = this.parts
    if (!output.hasGiven) throw providerError('The provider ended its answer without a completion.')
    if (!isFinished(state))
      throw providerError('The provider ended its answer without a finish_reason.')
    memory.checkAssembly()
    const { visible, hidden } = finishChunks(terms, state)
    if (visible !== null) this.give(visible, true)
    else if (!output.isHolding) this.give(closingChunk(terms, state), true)
    if (hidden !== null) addChunk(this.assembly, hidden)
    output.conclude()
    this.isDone = true
  }
}

function hasFinishReason({ choices }: JsonObject): boolean {
  return (
    isJsonArray(choices) &&
    choices.some((choice) => isJsonObject(choice) && typeof choice.finish_reason === 'string')
  )
}

function providerError(message: string): CallFault {
  return new CallFault('provider_error', message)
}
