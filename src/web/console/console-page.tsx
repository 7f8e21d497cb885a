import { useEffect, useMemo, useRef, useState } from 'preact/hooks'
import { OwnGatewayFault } from '../kit/gateway.ts'
import { Busy, FaultNotice } from '../kit/notices.tsx'
import { OutsideText } from '../kit/outside-text.tsx'
import { forgetKey, holdKey, tabKey } from '../kit/tab-key.ts'
import { PARTS, type Part, partIdOf, pathOf } from './parts.tsx'
import { askHolder, may, openSession, type Session, SessionContext } from './session.ts'
import { type SignedIn, SignIn } from './sign-in.tsx'

type SignState =
  | { readonly kind: 'out'; readonly reason: string | null; readonly wasIn: boolean }
  // The tab still has this key after a reload. The page asks the gateway whose key this is.
  | { readonly kind: 'asking'; readonly key: string }
  | { readonly kind: 'unknown'; readonly key: string; readonly fault: unknown }
  | ({ readonly kind: 'in' } & Omit<SignedIn, 'isKept'>)

/** Asks for a key, and then shows the parts that this key may see. */
export function ConsolePage() {
  const [state, setState] = useState<SignState>(() => {
    const key = tabKey()
    return key === null ? { kind: 'out', reason: null, wasIn: false } : { kind: 'asking', key }
  })
  const signOut = (reason: string | null = null) => {
    forgetKey()
    setState({ kind: 'out', reason, wasIn: true })
  }
  const key = state.kind === 'out' ? null : state.key
  const isAsking = state.kind === 'asking'
  useEffect(() => {
    if (!isAsking || key === null) return
    const abort = new AbortController()
    askHolder(key, abort.signal).then(
      (holder) => setState({ kind: 'in', key, holder }),
      (fault: unknown) => {
        if (abort.signal.aborted) return
        if (fault instanceof OwnGatewayFault && fault.status === 401)
          signOut('The key that this tab kept is no longer valid.')
        else setState({ kind: 'unknown', key, fault })
      },
    )
    return () => abort.abort()
  }, [isAsking, key])

  switch (state.kind) {
    case 'out':
      return (
        <SignIn
          reason={state.reason}
          wasIn={state.wasIn}
          onSignedIn={({ isKept, ...signedIn }) => {
            holdKey(signedIn.key, isKept)
            setState({ kind: 'in', ...signedIn })
          }}
        />
      )
    case 'asking':
      return (
        <>
          <h1>Console</h1>
          <Busy what="Asking for the account of this key…" />
        </>
      )
    case 'unknown':
      return (
        <>
          <h1>Console</h1>
          <FaultNotice
            fault={state.fault}
            onRetry={() => setState({ kind: 'asking', key: state.key })}
          />
          <p>
            <button type="button" onClick={() => signOut()}>
              Sign out
            </button>
          </p>
        </>
      )
    case 'in':
      return <SignedInPage state={state} signOut={signOut} />
  }
}

function SignedInPage({
  state: { key, holder },
  signOut,
}: {
  readonly state: Omit<SignedIn, 'isKept'>
  readonly signOut: (reason?: string) => void
}) {
  const session = useMemo(() => openSession({ key, holder, signOut }), [key, holder])
  const shown = PARTS.filter(({ scope }) => scope === null || may(session, scope))
  const { partId, go, place } = usePart()
  const part = partId === null ? shown[0] : PARTS.find(({ id }) => id === partId)
  const isShown = part !== undefined && shown.includes(part)
  const seen = useRef(new Set<Part>())
  if (isShown) seen.current.add(part)
  const list = useRef<HTMLUListElement>(null)
  useEffect(() => {
    // On a narrow screen, the list of parts scrolls sideways.
    list.current?.querySelector('[aria-current]')?.scrollIntoView({ block: 'nearest' })
    document.title = `${part?.name ?? 'Console'} · Console · Affidavit`
  }, [part])
  return (
    <SessionContext.Provider value={session}>
      <div class="console-top">
        <nav aria-label="Parts of the console">
          <ul class="parts" ref={list}>
            {shown.map((one) => (
              <li key={one.id}>
                <a
                  href={pathOf(one)}
                  aria-current={one === part ? 'page' : undefined}
                  onClick={(event) => follow(event, () => go(one))}
                >
                  {one.name}
                </a>
              </li>
            ))}
          </ul>
        </nav>
        <p class="signed-in" title={`For ${holder.scopes.join(', ')}`}>
          <OutsideText text={holder.account_name} isOneLine={true} shownMax={80} />{' '}
          <span class="hex faint">{holder.key_id}</span>{' '}
          <button type="button" class="small" onClick={() => signOut()}>
            Sign out
          </button>
        </p>
      </div>
      <div ref={place} class="part">
        {shown
          .filter((one) => one === part || (one.isKept && seen.current.has(one)))
          .map((one) => (
            <div key={one.id} hidden={one !== part}>
              <one.show />
            </div>
          ))}
        {!isShown && <NotShown part={part} session={session} />}
      </div>
    </SessionContext.Provider>
  )
}

function NotShown({
  part,
  session: { signOut },
}: {
  readonly part: Part | undefined
  readonly session: Session
}) {
  return (
    <>
      <h1 tabIndex={-1}>{part?.name ?? 'No such part'}</h1>
      <div class="notice warn">
        <p>
          {part === undefined
            ? 'The console has no part at this address. Choose one from the list.'
            : `This part needs a key with the scope ${part.scope}.`}
        </p>
        {part !== undefined && (
          <p>
            <button type="button" onClick={() => signOut()}>
              Sign in with another key
            </button>
          </p>
        )}
      </div>
    </>
  )
}

/**
 * Returns the part that the address names. `go` shows another part without loading a page, so that
 * the tab keeps the key. The focus moves to the new heading.
 */
function usePart() {
  const [partId, setPartId] = useState(() => partIdOf(location.pathname))
  const place = useRef<HTMLDivElement>(null)
  useEffect(() => {
    const read = () => setPartId(partIdOf(location.pathname))
    addEventListener('popstate', read)
    return () => removeEventListener('popstate', read)
  }, [])
  useEffect(() => {
    place.current?.querySelector<HTMLElement>(':scope > :not([hidden]) h1, :scope > h1')?.focus()
  }, [partId])
  const go = (part: Part) => {
    history.pushState(null, '', pathOf(part))
    setPartId(part.id)
  }
  return { partId, go, place }
}

/** The browser itself handles a click that opens another tab or window. */
function follow(event: MouseEvent, go: () => void): void {
  if (event.button !== 0 || event.ctrlKey || event.metaKey || event.shiftKey || event.altKey) return
  event.preventDefault()
  go()
}
