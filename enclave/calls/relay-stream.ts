import { createHash } from 'node:crypto'
import type { IncomingMessage } from 'node:http'
import {
  addChunk,
  addText,
  emptyAssembly,
  finishAssembly,
} from '../../attestation/assemble-completion.ts'
import { FormatError } from '../../attestation/errors.ts'
import { canonicalizeJson } from '../../attestation/json/canonical.ts'
import { makeWellFormed, parseUnsettled } from '../../attestation/json/parse-lenient.ts'
import { isJsonArray, isJsonObject, type JsonObject } from '../../attestation/json/value.ts'
import type { Receipt } from '../../attestation/receipt.ts'
import { EventParser, type ServerEvent } from '../../attestation/stream/event-parser.ts'
import {
  type ChunkState,
  closingChunk,
  finishChunks,
  isFinished,
  NO_CHUNKS,
  normalizeChunk,
  type StreamTerms,
} from '../../attestation/stream/normalize-chunk.ts'
import { CallerGone, CallFault } from '../call-fault.ts'
import type { Reservation } from '../log/memory-budget.ts'
import { readReason } from '../protocol/refusal.ts'
import { makeTextTemplate, matchText, PADDING, type TextTemplate } from '../stream/text-template.ts'
import { StreamMemory } from './answer-memory.ts'
import { type BodyTerms, readPackets, type Watchdog } from './read-body.ts'
import type { StreamSink } from './stream-sink.ts'

/**
 * How long the enclave still reads after `[DONE]`, milliseconds. Only the end of the body should
 * follow.
 */
const LINGER_MS = 1_000

/**
 * After this many failures, the stream gets no more templates. Such chunks differ by more than
 * their text, and a template takes as long as parsing an event.
 */
const TEMPLATES_UNUSED_MAX = 8

/** Input and tools for relaying one stream. */
type RelayInput = {
  readonly body: IncomingMessage
  readonly bodyTerms: BodyTerms & { readonly space: Reservation }
  readonly stream: StreamTerms
  readonly sink: StreamSink
  readonly watchdog: Watchdog
  readonly idleTimeoutMs: number
}

/** A stream that has ended after at least one chunk was passed on. */
type RelayedStream = {
  readonly outcome: Receipt['outcome']
  /** The completion, assembled from all chunks, with usage if the provider sent it. */
  readonly response: JsonObject
  /** hashChunks (hex) of the chunks that were passed on. */
  readonly streamHash: string
  /** SHA-256 (hex) of all received bytes of the body. */
  readonly receivedHash: string
  /** The fault if the outcome is upstream_error. Otherwise null. */
  readonly fault: CallFault | null
}

/**
 * Passes a provider's stream on, chunk by chunk, and says how it ended. A chunk with a
 * finish_reason is held until the next event, because the last chunk is sent as another event
 * (STREAM_EVENTS.last).
 *
 * - complete: `[DONE]` came and every choice begun has its finish_reason, or the body ended cleanly
 *   with every choice asked for begun and finished;
 * - client_disconnected: the caller went away, or did not read, before that;
 * - upstream_error: anything else (an error event, no JSON, a wrong or ambiguous chunk, a stall, a
 *   lost connection, too many bytes).
 *
 * Before the first chunk there is nothing to seal: then it throws the CallFault or CallerGone
 * instead.
 */
export async function relayStream(input: RelayInput): Promise<RelayedStream> {
  const relay = new StreamRelay(input)
  try {
    await relay.readAll()
    return relay.finish(null)
  } catch (error) {
    await relay.release()
    return relay.finish(error)
  }
}

class StreamRelay {
  private readonly input: RelayInput
  private readonly parser = new EventParser()
  private readonly received = createHash('sha256')
  private readonly given = createHash('sha256')
  private readonly assembly = emptyAssembly()
  /** Events that are ready to be sent. */
  private text = ''
  /** Chunks that were passed on but not hashed yet, each with its line feed. */
  private unhashed = ''
  /** Canonical text of a chunk that may be the last. */
  private held: string | null = null
  /** Canonical text of the chunk that is the last. */
  private last: string | null = null
  /** Template made from the previous event. Null if the next event cannot match it. */
  private template: TextTemplate | null = null
  /** Number of events in a row without a template, or with a template that did not match. */
  private templatesUnused = 0
  private readonly memory: StreamMemory
  private state: ChunkState = NO_CHUNKS
  private hasData = false
  private hasGiven = false
  private isDone = false

  constructor(input: RelayInput) {
    this.input = input
    this.memory = new StreamMemory(input.bodyTerms.space, this.assembly)
  }

  async readAll(): Promise<void> {
    for await (const packet of readPackets(this.input.body, this.input.bodyTerms)) {
      this.received.update(packet)
      // Data after [DONE] is hashed, because it was received, but otherwise ignored.
      if (!this.isDone) await this.relayEvents(() => this.parser.push(packet))
    }
    if (!this.isDone) await this.relayEvents(() => this.parser.end())
    if (!this.isDone) await this.relayEnd()
  }

  /** Sends pending events and the held chunk. An incomplete stream has no last chunk. */
  async release(): Promise<void> {
    this.flush()
    await this.send()
  }

  /** Returns the result after the whole body, or after `error` ended the reading. */
  finish(error: unknown): RelayedStream {
    if (this.isDone) return this.result('complete', null)
    if (!this.hasGiven) throw error
    if (error instanceof CallerGone) return this.result('client_disconnected', null)
    if (error instanceof CallFault) return this.result('upstream_error', error)
    throw error
  }

  private result(outcome: Receipt['outcome'], fault: CallFault | null): RelayedStream {
    return {
      outcome,
      response: finishAssembly(this.assembly),
      streamHash: this.given.update(this.unhashed).digest('hex'),
      receivedHash: this.received.digest('hex'),
      fault,
    }
  }

  private async relayEvents(parse: () => readonly ServerEvent[]): Promise<void> {
    for (const event of parse()) if (!this.isDone) this.relayEvent(event)
    this.memory.wait(this.parser.waitingBytes)
    await this.send()
  }

  private relayEvent({ event, data }: ServerEvent): void {
    const content = data.trim()
    if (content === '') return
    this.recordData()
    if (event === '' && this.relayText(content)) return
    this.template = null
    if (content === '[DONE]') {
      this.conclude()
      return
    }
    this.memory.admit(content)
    const chunk = parseChunk(content)
    if (event === 'error' || (chunk.error ?? null) !== null)
      throw providerError(
        `The provider broke off with an error: ${readReason(chunk).message ?? 'no reason given'}`,
      )
    const given = this.relayChunk(chunk)
    if (given === null || this.templatesUnused >= TEMPLATES_UNUSED_MAX) return
    this.template = this.learn(content, given)
    if (this.template === null) this.templatesUnused += 1
  }

  /**
   * Passes on an event that differs from the previous event only in its text. Returns false for any
   * other event.
   */
  private relayText(data: string): boolean {
    const { template } = this
    if (template === null) return false
    const match = matchText(template, data)
    if (match === null) {
      this.templatesUnused += 1
      return false
    }
    this.templatesUnused = 0
    this.memory.admit(data, template.size)
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

  /** Returns the chunk for an event with other text. Null unless there is exactly one chunk. */
  private giveMarked(marked: string): JsonObject | null {
    try {
      const step = normalizeChunk(this.input.stream, this.state, parseChunk(marked))
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
  private relayChunk(chunk: JsonObject): string | null {
    try {
      const { state, chunks } = normalizeChunk(this.input.stream, this.state, chunk)
      const given = chunks.map((item) => this.give(makeWellFormed(item) as JsonObject))
      this.state = state
      if (chunks.length > 0) this.hasGiven = true
      return given.length === 1 && this.held === null ? (given[0] ?? null) : null
    } catch (error) {
      if (!(error instanceof FormatError)) throw error
      // Before the first complete chunk, the call can still fail without a record.
      if (!this.hasGiven) this.discard()
      throw providerError(
        WRONG_CHUNKS[error.code] ?? 'The provider sent a chunk of the wrong form.',
      )
    }
  }

  /** Adds a chunk to the record and passes it on. If it throws FormatError, it does neither. */
  private give(chunk: JsonObject, mayBeLast = hasFinishReason(chunk)): string {
    addChunk(this.assembly, chunk)
    const text = canonicalizeJson(chunk)
    this.giveText(text, mayBeLast)
    return text
  }

  private giveText(text: string, mayBeLast = false): void {
    this.unhashed += `${text}\n`
    this.flush()
    if (mayBeLast) this.held = text
    else this.text += encodeEvent(text)
  }

  private discard(): void {
    this.text = ''
    this.held = null
  }

  private flush(): void {
    if (this.held !== null) this.text += encodeEvent(this.held)
    this.held = null
  }

  /**
   * Passes on the last chunk of a complete stream, and waits at most LINGER_MS for the end of the
   * body.
   */
  private conclude(): void {
    const { stream, watchdog } = this.input
    if (!this.hasGiven) throw providerError('The provider ended its answer without a completion.')
    if (!isFinished(this.state))
      throw providerError('The provider ended its answer without a finish_reason.')
    const { visible, hidden } = finishChunks(stream, this.state)
    if (visible !== null) this.give(visible, true)
    else if (this.held === null) this.give(closingChunk(stream, this.state), true)
    if (hidden !== null) addChunk(this.assembly, hidden)
    this.last = this.held
    this.held = null
    this.isDone = true
    watchdog.expect('the end of its answer', LINGER_MS)
  }

  /**
   * The body ended cleanly. Some providers never send [DONE]: the answer is complete if all choices
   * have ended.
   */
  private async relayEnd(): Promise<void> {
    const { choicesAsked } = this.input.stream
    if (this.state.choices.size < Math.max(1, choicesAsked) || !isFinished(this.state))
      throw providerError('The provider ended its answer before it was complete.')
    this.conclude()
    await this.send()
  }

  private recordData(): void {
    const { watchdog, idleTimeoutMs } = this.input
    if (this.hasData) watchdog.touch()
    else watchdog.expect('more of its answer', idleTimeoutMs)
    this.hasData = true
  }

  /** While the gateway does not read, the provider is not read, and its time limit rests. */
  private async send(): Promise<void> {
    const { sink, watchdog, idleTimeoutMs } = this.input
    const { text, last } = this
    // One call for each packet is cheaper than one call for each chunk.
    this.given.update(this.unhashed)
    this.unhashed = ''
    this.text = ''
    this.last = null
    const hasRoom = text === '' || sink.write(text)
    if ((last === null || sink.last(last)) && hasRoom) return
    watchdog.rest()
    await sink.drained()
    watchdog.expect('more of its answer', this.isDone ? LINGER_MS : idleTimeoutMs)
  }
}

function parseChunk(data: string): JsonObject {
  try {
    const chunk = parseUnsettled(data)
    if (isJsonObject(chunk)) return chunk
  } catch (error) {
    if (!(error instanceof FormatError)) throw error
  }
  throw providerError('The provider sent an event that is no JSON object.')
}

function encodeEvent(data: string): string {
  return `data: ${data}\n\n`
}

function hasFinishReason({ choices }: JsonObject): boolean {
  return (
    isJsonArray(choices) &&
    choices.some((choice) => isJsonObject(choice) && typeof choice.finish_reason === 'string')
  )
}

/** Messages for the caller if checkChunk refuses a chunk, by code. */
const WRONG_CHUNKS: Readonly<Record<string, string>> = {
  changed_type:
    'The provider sent a chunk that goes on in another type than the stream began with.',
  changed_name: 'The provider sent a second id or name for one call.',
  changed_finish: 'The provider sent a second role, call type or finish_reason for one choice.',
}

function providerError(message: string): CallFault {
  return new CallFault('provider_error', message)
}
