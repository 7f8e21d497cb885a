import { type Inputs, useCallback, useEffect, useRef, useState } from 'preact/hooks'

export type Loaded<Value> = {
  /** The newest value, also while the next one is loading. Null before the first load. */
  readonly value: Value | null
  /** Why the latest load failed. Null when it succeeded. */
  readonly fault: unknown
  readonly isLoading: boolean
  readonly reload: () => void
}

/**
 * Loads a value when the component appears, when `inputs` change, and every `everyMs` while the
 * page is visible. A load that is no longer needed is aborted.
 */
export function useLoaded<Value>(
  load: (signal: AbortSignal) => Promise<Value>,
  inputs: Inputs,
  { everyMs = null }: { readonly everyMs?: number | null } = {},
): Loaded<Value> {
  const [state, setState] = useState<Omit<Loaded<Value>, 'reload'>>({
    value: null,
    fault: null,
    isLoading: true,
  })
  const [round, setRound] = useState(0)
  const reload = useCallback(() => setRound((before) => before + 1), [])
  const latest = useRef(load)
  latest.current = load

  useEffect(() => {
    const abort = new AbortController()
    let timer: ReturnType<typeof setTimeout> | null = null
    const run = async () => {
      setState((before) => ({ ...before, isLoading: true }))
      try {
        const value = await latest.current(abort.signal)
        if (!abort.signal.aborted) setState({ value, fault: null, isLoading: false })
      } catch (fault) {
        if (!abort.signal.aborted)
          setState(({ value }) => ({ value, fault: fault ?? new Error(), isLoading: false }))
      }
      if (everyMs !== null && !abort.signal.aborted) timer = setTimeout(again, everyMs)
    }
    const again = () => {
      if (document.visibilityState === 'visible') void run()
      else document.addEventListener('visibilitychange', again, { once: true })
    }
    void run()
    return () => {
      abort.abort()
      if (timer !== null) clearTimeout(timer)
      document.removeEventListener('visibilitychange', again)
    }
  }, [...inputs, round, everyMs])

  return { ...state, reload }
}
