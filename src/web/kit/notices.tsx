import { type ComponentChildren, createContext } from 'preact'
import { useContext, useEffect, useState } from 'preact/hooks'
import { OwnGatewayFault } from './gateway.ts'
import { OutsideText } from './outside-text.tsx'

/** Each tone has a colour and a sign. */
export type Tone = 'good' | 'bad' | 'open' | 'warn' | 'development'

const SIGNS: Readonly<Record<Tone, string>> = {
  good: '✓',
  bad: '✗',
  open: '–',
  warn: '!',
  // The check passed, but with a root that proves nothing to other people.
  development: '✓',
}

/** True if the content depends on another root than AWS's. Then no state is shown in green. */
export const Development = createContext(false)

/** The text has one or two words. */
export function State({
  tone,
  children,
}: {
  readonly tone: Tone
  readonly children: ComponentChildren
}) {
  const isDevelopment = useContext(Development)
  const shown = isDevelopment && tone === 'good' ? 'development' : tone
  return (
    <span class={`state ${shown}`}>
      <span aria-hidden="true">{SIGNS[shown]} </span>
      {children}
    </span>
  )
}

/** Says what failed and what to do, with a button if another attempt can help. */
export function FaultNotice({
  fault,
  onRetry,
  children,
}: {
  readonly fault: unknown
  readonly onRetry?: () => void
  /** Replaces the general advice about the fault. */
  readonly children?: ComponentChildren
}) {
  const message = fault instanceof Error && fault.message !== '' ? fault.message : String(fault)
  const requestId = fault instanceof OwnGatewayFault ? fault.requestId : null
  return (
    <div class="notice bad" role="alert">
      <p>
        <OutsideText text={message} shownMax={500} />
      </p>
      <p>{children ?? adviceFor(fault)}</p>
      {requestId !== null && (
        <p class="faint">
          Request <OutsideText text={requestId} isOneLine={true} shownMax={128} />
        </p>
      )}
      {onRetry !== undefined && (
        <p>
          <button type="button" onClick={onRetry}>
            Try again
          </button>
        </p>
      )}
    </div>
  )
}

function adviceFor(fault: unknown): string {
  if (!(fault instanceof OwnGatewayFault)) return 'Load the page again.'
  const { status, code } = fault
  if (status === 0) return 'Check your connection, then try again.'
  if (status === 401) return 'Sign in with another API key.'
  if (code === 'insufficient_scope') return 'Sign in with a key that has this scope.'
  if (status === 404) return 'Check the address: it may belong to another gateway.'
  if (status === 429) return 'Wait a minute, then try again.'
  if (status >= 500) return 'Try again. If the problem stays, tell the operator.'
  return 'Change your input, then try again.'
}

/** Work that takes less time shows no notice, so that the page does not flicker. */
const PATIENCE_MS = 1_000

/** `done`: the finished part (0 to 1), if known. */
export function Busy({
  what,
  done = null,
}: {
  readonly what: string
  readonly done?: number | null
}) {
  const [isShown, setIsShown] = useState(false)
  useEffect(() => {
    const timer = setTimeout(() => setIsShown(true), PATIENCE_MS)
    return () => clearTimeout(timer)
  }, [])
  return (
    <div role="status" aria-live="polite">
      {isShown && (
        <p>
          {what}{' '}
          {done === null ? (
            <progress aria-label={what} />
          ) : (
            <progress aria-label={what} value={done} max={1} />
          )}
        </p>
      )}
    </div>
  )
}
