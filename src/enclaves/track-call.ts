import type { CompletionAnswer } from './enclave-client.ts'
import type { EnclaveEvent } from './enclave-events.ts'

/** Told of one call: `onBegin` at once, `onEnd` exactly once, `onError` of what it fails with. */
export type CallWatcher = {
  /** The call's own: an abort ends it, also when nobody reads its answer. */
  readonly signal: AbortSignal
  readonly onBegin: () => void
  readonly onEnd: () => void
  readonly onError: (error: unknown) => void
}

/** Runs a call. It lasts until it fails, its answer is whole, or a streamed answer is read to its end or left. */
export async function trackCall(
  run: () => Promise<CompletionAnswer>,
  { signal, onBegin, onEnd, onError }: CallWatcher,
): Promise<CompletionAnswer> {
  let isOver = false
  const end = () => {
    if (isOver) return
    isOver = true
    signal.removeEventListener('abort', end)
    onEnd()
  }
  onBegin()
  signal.addEventListener('abort', end)
  if (signal.aborted) end()
  try {
    const answer = await run()
    if (answer.kind === 'stream')
      return { kind: 'stream', events: trackEvents(answer.events, { end, onError }) }
    end()
    return answer
  } catch (error) {
    end()
    onError(error)
    throw error
  }
}

async function* trackEvents(
  events: AsyncIterable<EnclaveEvent>,
  { end, onError }: { readonly end: () => void; readonly onError: (error: unknown) => void },
): AsyncGenerator<EnclaveEvent> {
  try {
    yield* events
  } catch (error) {
    onError(error)
    throw error
  } finally {
    end()
  }
}
