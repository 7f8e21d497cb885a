import type { Logger } from '../observability/logger.ts'
import type { CompletionAnswer } from './enclave-client.ts'
import { EnclaveError } from './enclave-errors.ts'
import type { EncryptedAnswer } from './encrypted-answer.ts'

/**
 * An enclave hangs if identity requests time out and no data arrived for this long. Sealed
 * completions are committed when the enclave works again.
 */
const SILENCE_MAX_MS = 10_000

type RunningCallsOptions = {
  /** For the log. */
  readonly socketPath: string
  /** Default: SILENCE_MAX_MS. */
  readonly silenceMaxMs?: number
  readonly onBegin: () => void
  readonly onEnd: () => void
  readonly onFault: (error: unknown) => void
  readonly log: Logger
}

type RunningCall = {
  /** Aborted when the caller's signal is aborted, or when the enclave hangs. */
  readonly signal: AbortSignal
  readonly end: () => void
}

/** The running calls at one endpoint. They are ended if the enclave hangs. */
export class RunningCalls {
  readonly #options: RunningCallsOptions
  /** Aborting one of these controllers ends its call. */
  readonly #calls = new Set<AbortController>()
  #repliedAtMs = performance.now()
  /**
   * Identity requests that failed since the last answer. A single failure may mean that this
   * process was blocked.
   */
  #silentLooks = 0

  constructor(options: RunningCallsOptions) {
    this.#options = options
  }

  /** Starts a call. Pass the call to `answerOf`, which ends the call. */
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
   * Ends the call when the call fails, when its answer is complete, or when the caller stops
   * reading its events. An aborted signal ends the call even if no event is read.
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

  /** Call this when data arrives. */
  markReply(): void {
    this.#repliedAtMs = performance.now()
    this.#silentLooks = 0
  }

  /** Call this after a failed identity request. Ends all calls of an enclave that hangs. */
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
