import { useEffect, useRef, useState } from 'preact/hooks'
import type { KeyHolderReply } from '../../accounts/key-routes.ts'
import { OwnGatewayFault } from '../kit/gateway.ts'
import { Busy, FaultNotice } from '../kit/notices.tsx'
import { askHolder } from './session.ts'

export type SignedIn = {
  readonly key: string
  readonly holder: KeyHolderReply
  /** True if the key stays after a reload of the page. */
  readonly isKept: boolean
}

/** See src/api/authenticate.ts. */
const KEY_TEXT = /^[\x21-\x7e]{1,512}$/

export function SignIn({
  reason,
  wasIn,
  onSignedIn,
}: {
  /** Why the last session ended. Null when there was no session. */
  readonly reason: string | null
  /**
   * True after an earlier session. The heading then gets the focus, because the focused element is
   * gone.
   */
  readonly wasIn: boolean
  readonly onSignedIn: (signedIn: SignedIn) => void
}) {
  const [isAsking, setIsAsking] = useState(false)
  const [fault, setFault] = useState<unknown>(null)
  const field = useRef<HTMLInputElement>(null)
  const keep = useRef<HTMLInputElement>(null)
  const heading = useRef<HTMLHeadingElement>(null)
  useEffect(() => {
    document.title = 'Console · Affidavit'
    if (wasIn) heading.current?.focus()
  }, [wasIn])

  const submit = async (event: Event) => {
    event.preventDefault()
    const key = field.current?.value.trim() ?? ''
    setFault(null)
    setIsAsking(true)
    try {
      if (!KEY_TEXT.test(key)) throw new Error('This cannot be an API key.')
      const holder = await askHolder(key)
      onSignedIn({ key, holder, isKept: keep.current?.checked ?? false })
    } catch (refused) {
      setFault(refused)
      setIsAsking(false)
      field.current?.focus()
    }
  }

  return (
    <>
      <h1 tabIndex={-1} ref={heading}>
        Console
      </h1>
      <p>Sign in with an API key. The key decides what you can do here.</p>
      {reason !== null && (
        <div class="notice warn" role="status">
          <p>{reason}</p>
        </div>
      )}
      <form class="card sign-in" onSubmit={(event) => void submit(event)}>
        <div class="field">
          <label for="key">API key</label>
          <input
            id="key"
            ref={field}
            type="password"
            required
            autocomplete="off"
            spellcheck={false}
            aria-describedby="key-hint"
            aria-invalid={fault !== null}
          />
          <p class="hint" id="key-hint">
            It stays in this tab's memory, and is sent only to this gateway.
          </p>
        </div>
        <label class="choice">
          <input type="checkbox" ref={keep} /> Keep it when this page is loaded again
          <span class="hint"> (in the tab's storage, until the tab is closed or you sign out)</span>
        </label>
        <p>
          <button type="submit" class="primary" disabled={isAsking}>
            Sign in
          </button>
        </p>
        {isAsking && <Busy what="Asking for the account of this key…" />}
        {fault !== null && <FaultNotice fault={fault}>{adviceFor(fault)}</FaultNotice>}
      </form>
      <p class="faint">
        No key yet? The operator of this gateway creates a key with{' '}
        <code>affidavit keys create</code>; <code>npm start</code> prints one.
      </p>
    </>
  )
}

function adviceFor(fault: unknown): string | undefined {
  if (!(fault instanceof OwnGatewayFault))
    return 'A key is one word of letters, digits and signs, like afd_…: copy it again.'
  if (fault.status === 401)
    return 'Check that you copied the whole key, and that the key was not revoked and has not expired.'
  return undefined
}
