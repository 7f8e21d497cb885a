import { CallFault } from '../call-fault.ts'

/** Ends a call whose provider is silent too long: cancels it with a CallFault `provider_timeout`. */
export type Watchdog = {
  /** Starts waiting for something; replaces what was waited for before. */
  readonly expect: (what: string, withinMs: number) => void
  /** It came: the wait starts anew. */
  readonly touch: () => void
  /** Nothing is expected of the provider now. */
  readonly rest: () => void
}

/** A watchdog over one call. Rest it when the call is over. */
export function createWatchdog(cancel: AbortController): Watchdog {
  let timer: NodeJS.Timeout | undefined
  return {
    expect: (what, withinMs) => {
      clearTimeout(timer)
      timer = setTimeout(() => {
        cancel.abort(
          new CallFault('provider_timeout', `The provider did not send ${what} within ${withinMs} ms.`),
        )
      }, withinMs)
    },
    touch: () => {
      timer?.refresh()
    },
    rest: () => clearTimeout(timer),
  }
}
