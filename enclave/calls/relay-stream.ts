import { createHash } from 'node:crypto'
import type { IncomingMessage } from 'node:http'
import { addChunk, emptyAssembly, finishAssembly } from '../../attestation/assemble-completion.ts'
import { FormatError } from '../../attestation/errors.ts'
import { canonicalizeJson } from '../../attestation/json/canonical.ts'
import { parseLenientJson } from '../../attestation/json/parse-lenient.ts'
import { isJsonObject, type JsonObject } from '../../attestation/json/value.ts'
import type { Receipt } from '../../attestation/receipt.ts'
import { CallerGone, CallFault } from '../call-fault.ts'
import { describeProviderError } from '../providers/refusal.ts'
import { EventParser, EventTooLargeError, type ServerEvent } from '../stream/event-parser.ts'
import {
  type ChunkState,
  finishChunks,
  isFinished,
  NO_CHUNKS,
  normalizeChunk,
  type StreamTerms,
} from '../stream/normalize-chunk.ts'
import { type BodyTerms, readPackets } from './read-body.ts'
import type { StreamSink } from './stream-sink.ts'
import type { Watchdog } from './watchdog.ts'

/** How long the body may go on after `[DONE]` before it is given up, milliseconds: only its end should follow. */
export const LINGER_MS = 1_000

/** What relaying one stream needs. */
export type RelayInput = {
  readonly body: IncomingMessage
  readonly bodyTerms: BodyTerms
  readonly stream: StreamTerms
  readonly sink: StreamSink
  readonly watchdog: Watchdog
  readonly idleTimeoutMs: number
}

/** A stream that is over and of which at least one chunk was passed on. */
export type RelayedStream = {
  readonly outcome: Receipt['outcome']
  /** The completion assembled from the chunks, as far as they came, with usage if it was stated. */
  readonly response: JsonObject
  /** SHA-256 (hex) of the body bytes as far as they came. */
  readonly receivedHash: string
  /** Why the outcome is upstream_error; else null. */
  readonly fault: CallFault | null
}

/**
 * Passes a provider's stream on, chunk by chunk, and says how it ended:
 *
 * - complete: `[DONE]` came, or the body ended cleanly with every choice asked for begun and finished;
 * - client_disconnected: the caller went away, or did not read, before that;
 * - upstream_error: anything else (an error event, no JSON, a wrong chunk, a stall, a lost connection, too many bytes).
 *
 * Before the first chunk there is nothing to seal: then it throws the CallFault or CallerGone instead.
 */
export async function relayStream(input: RelayInput): Promise<RelayedStream> {
  const relay = new StreamRelay(input)
  try {
    await relay.readAll()
    return relay.finish(null)
  } catch (error) {
    return relay.finish(error)
  }
}

class StreamRelay {
  private readonly input: RelayInput
  private readonly parser = new EventParser()
  private readonly received = createHash('sha256')
  private readonly assembly = emptyAssembly()
  private state: ChunkState = NO_CHUNKS
  private hasData = false
  private isDone = false

  constructor(input: RelayInput) {
    this.input = input
  }

  async readAll(): Promise<void> {
    for await (const packet of readPackets(this.input.body, this.input.bodyTerms)) {
      this.received.update(packet)
      // What follows [DONE] is hashed, being part of what was received, and otherwise ignored.
      if (!this.isDone) await this.relayEvents(() => this.parser.push(packet))
    }
    if (!this.isDone) await this.relayEvents(() => this.parser.end())
    if (!this.isDone) await this.relayEnd()
  }

  /** The result after everything was read, or after `error` ended that. */
  finish(error: unknown): RelayedStream {
    if (this.isDone) return this.result('complete', null)
    if (this.state.begun.size === 0) throw error
    if (error instanceof CallerGone) return this.result('client_disconnected', null)
    if (error instanceof CallFault) return this.result('upstream_error', error)
    throw error
  }

  private result(outcome: Receipt['outcome'], fault: CallFault | null): RelayedStream {
    return {
      outcome,
      response: finishAssembly(this.assembly),
      receivedHash: this.received.digest('hex'),
      fault,
    }
  }

  /** Passes on what the events amount to; also what came before one of them turned out to be at fault. */
  private async relayEvents(parse: () => readonly ServerEvent[]): Promise<void> {
    let text = ''
    try {
      for (const event of parse()) if (!this.isDone) text += this.relayEvent(event)
    } catch (error) {
      await this.send(text)
      throw error instanceof EventTooLargeError
        ? new CallFault('answer_too_large', "An event of the provider's stream is too large.")
        : error
    }
    await this.send(text)
  }

  private relayEvent({ event, data }: ServerEvent): string {
    const content = data.trim()
    if (content === '') return ''
    this.noteData()
    if (content === '[DONE]') return this.conclude()
    const chunk = parseChunk(content)
    if (event === 'error' || (chunk.error ?? null) !== null)
      throw providerError(`The provider broke off with an error: ${describeProviderError(chunk).message}`)
    return this.addChunks(chunk)
  }

  private addChunks(chunk: JsonObject): string {
    try {
      const { state, chunks } = normalizeChunk(this.input.stream, this.state, chunk)
      // Tried apart from the rest first: one that does not fit must not be in the record, for it is not passed on.
      for (const item of chunks) addChunk(emptyAssembly(), item)
      for (const item of chunks) addChunk(this.assembly, item)
      this.state = state
      return chunks.map(encodeEvent).join('')
    } catch (error) {
      if (error instanceof FormatError) throw providerError('The provider sent a chunk of the wrong form.')
      throw error
    }
  }

  /** The stream is complete: gives the chunk that is still due, and waits no longer than LINGER_MS for the body's end. */
  private conclude(): string {
    if (this.state.begun.size === 0)
      throw providerError('The provider ended its answer without a completion.')
    const { visible, hidden } = finishChunks(this.input.stream, this.state)
    const last = visible ?? hidden
    if (last !== null) addChunk(this.assembly, last)
    this.isDone = true
    this.input.watchdog.expect('the end of its answer', LINGER_MS)
    return visible === null ? '' : encodeEvent(visible)
  }

  /** The body ended cleanly without [DONE]. Some providers never send it; what they finished is complete. */
  private async relayEnd(): Promise<void> {
    if (!isFinished(this.input.stream, this.state))
      throw providerError('The provider ended its answer before it was complete.')
    await this.send(this.conclude())
  }

  private noteData(): void {
    const { watchdog, idleTimeoutMs } = this.input
    if (this.hasData) watchdog.touch()
    else watchdog.expect('more of its answer', idleTimeoutMs)
    this.hasData = true
  }

  /** While the gateway does not read, neither do we, so nothing is expected of the provider. */
  private async send(text: string): Promise<void> {
    const { sink, watchdog, idleTimeoutMs } = this.input
    if (text === '' || sink.write(text)) return
    watchdog.rest()
    await sink.drained()
    watchdog.expect('more of its answer', this.isDone ? LINGER_MS : idleTimeoutMs)
  }
}

function parseChunk(data: string): JsonObject {
  try {
    const chunk = parseLenientJson(data)
    if (isJsonObject(chunk)) return chunk
  } catch (error) {
    if (!(error instanceof FormatError)) throw error
  }
  throw providerError('The provider sent an event that is no JSON object.')
}

function encodeEvent(chunk: JsonObject): string {
  return `data: ${canonicalizeJson(chunk)}\n\n`
}

function providerError(message: string): CallFault {
  return new CallFault('provider_error', message)
}
