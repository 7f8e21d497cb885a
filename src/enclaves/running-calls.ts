import type { Logger } from '../observability/logger.ts'
import type { CompletionAnswer } from './enclave-client.ts'
import { EnclaveError } from './enclave-errors.ts'
import type { EncryptedAnswer } from './encrypted-answer.ts'

/**
 * An enclave that said nothing for so long, though it was asked who it is, hangs: its calls end.
 * What it has sealed for them is committed when it goes on.
 */
const SILENCE_MAX_MS = 10_000

export type RunningCallsOptions = {
  /** Of the enclave, for the log. */
  readonly socketPath: string
  /** Default: SILENCE_MAX_MS. */
  readonly silenceMaxMs?: number
  readonly onBegin: () => void
  readonly onEnd: () => void
  /** Called with what a call failed with. */
  readonly onFault: (error: unknown) => void
  readonly log: Logger
}

/** A call under way. */
type RunningCall = {
  /** Aborted when the caller's signal is, and when the enclave hangs. */
  readonly signal: AbortSignal
  readonly end: () => void
}

/** The calls under way at one endpoint. They are ended when the enclave there hangs. */
export class RunningCalls {
  readonly #options: RunningCallsOptions
  /** What ends each of them. */
  readonly #calls = new Set<AbortController>()
  #repliedAtMs = performance.now()
  /** Looks in vain since then: one is in vain too when this process itself was held up. */
  #silentLooks = 0

  constructor(options: RunningCallsOptions) {
    this.#options = options
  }

  /** Begins a call for a caller with this signal. `answerOf` ends it. */
  begin(signal: AbortSignal): RunningCall {
    const call = new AbortController()
    const leave = () => call.abort(signal.reason)
    const end = () => {
      if (!this.#calls.delete(call)) return
      signal.removeEventListener('abort', leave)
      this.#options.onEnd()
    }
    this.#calls.add(call)
    this.#options.onBegin()
    signal.addEventListener('abort', leave)
    call.signal.addEventListener('abort', end)
    if (signal.aborted) leave()
    return { signal: call.signal, end }
  }

  /**
   * Gives the answer of a call. The call ends when it fails, when its answer is whole, when its
   * events are read to their end or left, and when its signal is aborted: then also when its events
   * are not read.
   */
  async answerOf<Answer extends CompletionAnswer | EncryptedAnswer>(
    call: RunningCall,
    answering: Promise<Answer>,
  ): Promise<Answer> {
    try {
      const answer = await answering
      if ('events' in answer) return { ...answer, events: this.#read<unknown>(call, answer.events) }
      call.end()
      return answer
    } catch (error) {
      call.end()
      this.#options.onFault(error)
      throw error
    }
  }

  /** The enclave said something. */
  markReply(): void {
    this.#repliedAtMs = performance.now()
    this.#silentLooks = 0
  }

  /** After a look in vain: ends all calls when the enclave has been silent for too long. */
  endSilent(fault: Error): void {
    const { silenceMaxMs = SILENCE_MAX_MS, socketPath, log } = this.#options
    if (!(fault instanceof EnclaveError && fault.code === 'timeout')) return
    this.#silentLooks += 1
    const silentMs = performance.now() - this.#repliedAtMs
    const isHung = this.#silentLooks > 1 && silentMs >= silenceMaxMs
    if (!isHung || this.#calls.size === 0) return
    log.error(
      { enclave: socketPath, calls: this.#calls.size, silentMs: Math.round(silentMs) },
      'enclave hangs: its calls are ended',
    )
    const error = new EnclaveError('timeout', 'the enclave hangs: it no longer answers')
    for (const call of this.#calls) call.abort(error)
  }

  async *#read<Event>(call: RunningCall, events: AsyncIterable<Event>): AsyncGenerator<Event> {
    try {
      for await (const event of events) {
        this.markReply()
        yield event
      }
    } catch (error) {
      this.#options.onFault(error)
      throw error
    } finally {
      call.end()
    }
  }
}
