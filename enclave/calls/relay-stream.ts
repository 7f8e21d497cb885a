import { createHash } from 'node:crypto'
import { channel } from 'node:diagnostics_channel'
import type { IncomingMessage } from 'node:http'
import { ByteBuffer } from '#attestation/byte-buffer.ts'
import { EventParser, type ServerEvent } from '#attestation/dialects/chat/event-parser.ts'
import type { JsonObject } from '#attestation/json/value.ts'
import type { Receipt } from '#attestation/receipt.ts'
import { CallerGone, CallFault } from '../call-fault.ts'
import type { Reservation } from '../log/memory-budget.ts'
import { type AnswerStream, StreamOutput, type StreamParts } from '../stream/answer-stream.ts'
import { StreamMemory } from './answer-memory.ts'
import { type BodyTerms, readPackets, type Watchdog } from './read-body.ts'
import type { StreamSink } from './stream-sink.ts'

/** Time limit for the end of the body after the last event, milliseconds. */
const LINGER_MS = 1_000

/** Only development listens (src/local/keep-refused.ts). */
const REFUSED = channel('affidavit.refused_stream')

/** About as many bytes are kept of a body that has no event yet. */
const START_BYTES_MAX = 64 * 1024

type RelayInput = {
  readonly body: IncomingMessage
  readonly bodyTerms: BodyTerms & { readonly space: Reservation }
  /** Throws for the start of a body without any event that is an error, or not a stream. */
  readonly refuseStart: (start: Uint8Array) => void
  readonly open: (parts: StreamParts) => AnswerStream
  readonly sink: StreamSink
  readonly watchdog: Watchdog
  readonly idleTimeoutMs: number
}

/** A stream that ended after at least one of its events was passed on. */
type RelayedStream = {
  readonly outcome: Receipt['outcome']
  /** The answer from all events, with usage if the provider sent it. */
  readonly response: JsonObject
  /** SHA-256 (hex) over the events that were passed on. */
  readonly streamHash: string
  /** SHA-256 (hex) of all received bytes of the body. */
  readonly receivedHash: string
  /** The fault if the outcome is upstream_error. Otherwise null. */
  readonly fault: CallFault | null
}

/**
 * Passes a provider's stream on, event by event, and says how it ended. An event that can be the
 * last is sent only when the next event arrives, because the last event is sent under another event
 * name (STREAM_EVENTS.last).
 *
 * - complete: the last event of the dialect came (AnswerStream);
 * - client_disconnected: the caller left, or did not read, before the last event;
 * - upstream_error: anything else (an error event, no JSON, a wrong or ambiguous event, a stall, a
 *   lost connection, too many bytes).
 *
 * Throws the CallFault or CallerGone if the stream fails before its first event, because there is
 * nothing to seal.
 */
export async function relayStream(input: RelayInput): Promise<RelayedStream> {
  const relay = new StreamRelay(input)
  try {
    await relay.readAll()
    return relay.finish(null)
  } catch (error) {
    const code = error instanceof CallFault ? error.fault.refused_reason : undefined
    if (code !== undefined) REFUSED.publish({ body: input.body, code })
    await relay.release()
    return relay.finish(error)
  }
}

class StreamRelay {
  private readonly input: RelayInput
  private readonly parser = new EventParser({ errorLines: true })
  private readonly received = createHash('sha256')
  private readonly output = new StreamOutput()
  private readonly memory: StreamMemory
  private readonly stream: AnswerStream
  private hasData = false
  /** The start of the body while it has no event. */
  private readonly start = new ByteBuffer()

  constructor(input: RelayInput) {
    this.input = input
    this.memory = new StreamMemory(input.bodyTerms.space, () => this.stream.assembly)
    this.stream = input.open({ output: this.output, memory: this.memory })
  }

  async readAll(): Promise<void> {
    for await (const packet of readPackets(this.input.body, this.input.bodyTerms)) {
      this.input.watchdog.touch()
      this.received.update(packet)
      if (!this.hasData && this.start.length < START_BYTES_MAX) this.start.append(packet)
      // Data after the last event is hashed, because it was received, but otherwise ignored.
      if (!this.stream.isDone) await this.relayEvents(() => this.parser.push(packet))
    }
    if (!this.stream.isDone) await this.relayEvents(() => this.parser.end())
    if (this.stream.isDone) return
    if (!this.hasData) this.input.refuseStart(this.start.take())
    this.stream.end()
    await this.send()
  }

  /** Sends pending events and the held event, because an incomplete stream has no last event. */
  async release(): Promise<void> {
    this.output.flush()
    await this.send()
  }

  /** `error` is the reason why the reading stopped. Null if the whole body was read. */
  finish(error: unknown): RelayedStream {
    if (this.stream.isDone) return this.result('complete', null)
    if (!this.output.hasGiven) throw error
    if (error instanceof CallerGone) return this.result('client_disconnected', null)
    if (error instanceof CallFault) return this.result('upstream_error', error)
    throw error
  }

  private result(outcome: Receipt['outcome'], fault: CallFault | null): RelayedStream {
    return {
      outcome,
      response: this.stream.response(),
      streamHash: this.output.digest(),
      receivedHash: this.received.digest('hex'),
      fault,
    }
  }

  private async relayEvents(parse: () => readonly ServerEvent[]): Promise<void> {
    for (const event of parse()) {
      if (this.stream.isDone || event.data.trim() === '') continue
      this.recordData()
      this.stream.read(event)
    }
    this.memory.wait(this.parser.waitingBytes)
    await this.send()
  }

  private recordData(): void {
    const { watchdog, idleTimeoutMs } = this.input
    if (this.hasData) return
    this.hasData = true
    watchdog.expect('more of its answer', idleTimeoutMs)
    this.start.take()
  }

  /**
   * Sends the events of one packet together, because one write is cheaper than many. While the
   * gateway does not read, the enclave reads nothing from the provider, and the provider's time
   * limit stops.
   */
  private async send(): Promise<void> {
    const { sink, watchdog, idleTimeoutMs } = this.input
    const { text, last } = this.output.take()
    const { isDone } = this.stream
    if (last !== null) watchdog.expect('the end of its answer', LINGER_MS)
    const hasRoom = text === '' || sink.write(text)
    if ((last === null || sink.last(last)) && hasRoom) return
    watchdog.rest()
    await sink.drained()
    watchdog.expect('more of its answer', isDone ? LINGER_MS : idleTimeoutMs)
  }
}
