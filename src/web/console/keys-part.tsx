import { useRef, useState } from 'preact/hooks'
import type { KeyListReply, NewKeyReply } from '../../accounts/key-routes.ts'
import type { Scope } from '../../api/context.ts'
import { OwnGatewayFault } from '../kit/gateway.ts'
import { Busy, FaultNotice, State } from '../kit/notices.tsx'
import { OutsideText } from '../kit/outside-text.tsx'
import { useLoaded } from '../kit/use-loaded.ts'
import { CopyButton, Count } from '../kit/values.tsx'
import { ConfirmButton } from './confirm-button.tsx'
import { may, type Session, useSession } from './session.ts'
import { ShortTime } from './short-time.tsx'
import { type Column, Table } from './table.tsx'
import { ActionState, useAction } from './use-action.tsx'

type Key = KeyListReply['keys'][number]

const KEYS_PATH = '/v1/dashboard/keys'
/** Rows that are shown at first. An account may have 10,000 keys. */
const ROWS_MAX = 50

export function KeysPart() {
  const session = useSession()
  const [shownMax, setShownMax] = useState(ROWS_MAX)
  const { value, fault, reload } = useLoaded(
    (signal) => session.ask<KeyListReply>(KEYS_PATH, { signal }),
    [session],
  )
  const nowSeconds = Date.now() / 1000
  const keys = value === null ? [] : orderKeys(value.keys, nowSeconds)
  const isAdmin = may(session, 'admin')
  return (
    <>
      <h1 tabIndex={-1}>Keys</h1>
      <p>
        {isAdmin
          ? 'The keys of all accounts. A key with the scope admin can give any scopes and any time of expiry.'
          : "Your account's keys. A key cannot create a key with more rights, or one that expires later."}{' '}
        When a key is revoked, the keys that it created for its account are revoked too
        {isAdmin && ', and the keys that it created for other accounts stay'}.
      </p>
      {hindranceOf(session) === null ? (
        <MakeKey onMade={reload} />
      ) : (
        <p class="hint">{hindranceOf(session)}</p>
      )}
      <h2>Existing keys</h2>
      {fault !== null && <FaultNotice fault={fault} onRetry={reload} />}
      {value === null && fault === null && <Busy what="Asking for the keys…" />}
      <Table
        label="Keys"
        columns={columnsOf({ isAdmin, nowSeconds, reload })}
        rows={value === null ? null : keys.slice(0, shownMax)}
        keyOf={({ id }) => id}
        empty="There are no keys."
      />
      {keys.length > shownMax && (
        <p>
          <button type="button" onClick={() => setShownMax(shownMax * 4)}>
            Show more (<Count value={keys.length - shownMax} /> left)
          </button>
        </p>
      )}
    </>
  )
}

/** Why the session's key may not create keys. Null when it may. */
function hindranceOf(session: Session): string | null {
  const { budgets, key_id: id } = session.holder
  if (budgets.some((budget) => budget.key_id === id))
    return 'The key that you are signed in with has a budget, so it cannot create keys.'
  if (may(session, 'admin') || may(session, 'keys')) return null
  return 'The key that you are signed in with does not have the scope keys: it can only revoke itself.'
}

function columnsOf({
  isAdmin,
  nowSeconds,
  reload,
}: {
  readonly isAdmin: boolean
  readonly nowSeconds: number
  readonly reload: () => void
}): readonly Column<Key>[] {
  const account: Column<Key> = {
    title: 'Account',
    cell: (key) => <OutsideText text={key.account_name} isOneLine={true} shownMax={100} />,
  }
  return [
    { title: 'Name', kind: 'name', cell: (key) => <KeyName of={key} /> },
    ...(isAdmin ? [account] : []),
    { title: 'Id', cell: ({ id }) => <span class="hex">{id}</span> },
    { title: 'State', cell: (key) => <KeyState of={key} nowSeconds={nowSeconds} /> },
    { title: 'For', cell: ({ scopes }) => <span class="words">{scopes.join(', ')}</span> },
    {
      title: 'Last used',
      cell: ({ last_used_at: at }) =>
        at === null ? <span class="faint">never</span> : <ShortTime seconds={at} />,
    },
    { title: 'Created', cell: ({ created_at: at }) => <ShortTime seconds={at} to="day" /> },
    {
      title: 'Actions',
      kind: 'actions',
      cell: (key) =>
        stateOf(key, nowSeconds) === 'active' && <RevokeButton of={key} reload={reload} />,
    },
  ]
}

function KeyName({ of: { id, name } }: { readonly of: Key }) {
  const { holder } = useSession()
  return (
    <>
      <OutsideText text={name} isOneLine={true} shownMax={100} />
      {id === holder.key_id && <span class="faint"> (this key)</span>}
    </>
  )
}

function RevokeButton({ of: key, reload }: { readonly of: Key; readonly reload: () => void }) {
  const session = useSession()
  const isOwn = key.id === session.holder.key_id
  const revoke = async () => {
    await session.ask(`${KEYS_PATH}/${key.id}`, { method: 'DELETE' })
    if (isOwn) session.signOut('You revoked the key that you were signed in with.')
    else reload()
  }
  return (
    <ConfirmButton label="Revoke" what={`key ${key.id}`} title="Revoke this key?" act={revoke}>
      <p>
        <OutsideText text={key.name} isOneLine={true} shownMax={100} /> (
        <span class="hex">{key.id}</span>) is refused within a second, forever. Programs that use it
        get 401. The keys that it created for its account are refused too, except the key that you
        are signed in with.
      </p>
      {isOwn && <p>You are signed in with this key: you will be signed out.</p>}
    </ConfirmButton>
  )
}

function KeyState({ of: key, nowSeconds }: { readonly of: Key; readonly nowSeconds: number }) {
  const state = stateOf(key, nowSeconds)
  const at = state === 'revoked' ? key.revoked_at : key.expires_at
  return (
    <>
      <State tone={state === 'active' ? 'good' : 'open'}>{state}</State>{' '}
      {at !== null && (
        <span class="faint">
          {state === 'active' && 'until '}
          <ShortTime seconds={at} to="day" />
        </span>
      )}
    </>
  )
}

function stateOf(key: Key, nowSeconds: number): 'active' | 'revoked' | 'expired' {
  if (key.revoked_at !== null) return 'revoked'
  return key.expires_at !== null && key.expires_at <= nowSeconds ? 'expired' : 'active'
}

/** Active keys come first, then newer keys. */
function orderKeys(keys: readonly Key[], nowSeconds: number): readonly Key[] {
  const rank = (key: Key) => (stateOf(key, nowSeconds) === 'active' ? 0 : 1)
  return keys.toReversed().toSorted((one, other) => rank(one) - rank(other))
}

/** The purpose of each scope in words. */
const SCOPE_WORDS: readonly (readonly [Scope, string])[] = [
  ['inference', 'chats, embeddings, images, search; the history, limits and usage'],
  ['nodes', 'creating, running and watching nodes'],
  ['history:all', 'the completions of all accounts'],
  ['keys', 'creating and revoking keys with no more rights than this key'],
  ['admin', 'running this service: accounts, keys, enclaves, anchors'],
]

const DAY_SECONDS = 86_400
const LIFETIMES = [
  ['1 day', 1],
  ['7 days', 7],
  ['30 days', 30],
  ['90 days', 90],
  ['1 year', 365],
  ['never', null],
] as const
const LIFETIME_DAYS_DEFAULT = 90

function MakeKey({ onMade }: { readonly onMade: () => void }) {
  const session = useSession()
  const [made, setMade] = useState<NewKeyReply | null>(null)
  const action = useAction()
  const form = useRef<HTMLFormElement>(null)
  const grantable = SCOPE_WORDS.filter(([scope]) => may(session, 'admin') || may(session, scope))

  const make = async (event: Event) => {
    event.preventDefault()
    const fields = new FormData(form.current ?? undefined)
    const days = fields.get('days')
    const scopes = fields.getAll('scopes')
    setMade(null)
    await action.run(async () => {
      if (scopes.length === 0) throw new Error('This key would have no use.')
      const key = await session.ask<NewKeyReply>(KEYS_PATH, {
        method: 'POST',
        body: {
          name: fields.get('name'),
          scopes,
          expires_at: endOf(days, session.holder.expires_at),
        },
      })
      setMade(key)
      form.current?.reset()
      onMade()
    })
  }

  return (
    <details class="card" open={made !== null || undefined}>
      <summary>Create a key</summary>
      <form ref={form} onSubmit={(event) => void make(event)}>
        <div class="field">
          <label for="key-name">Name</label>
          <input id="key-name" name="name" required maxlength={100} autocomplete="off" />
        </div>
        <fieldset>
          <legend>What it is for</legend>
          {grantable.map(([scope, words]) => (
            <label key={scope} class="choice">
              <input
                type="checkbox"
                name="scopes"
                value={scope}
                defaultChecked={scope === 'inference' || grantable.length === 1}
              />{' '}
              {scope} <span class="hint">{words}</span>
            </label>
          ))}
        </fieldset>
        <div class="field">
          <label for="key-days">It expires after</label>
          <select id="key-days" name="days">
            {lifetimesFor(session.holder.expires_at).map(([words, days]) => (
              <option
                key={words}
                value={days === null ? '' : String(days)}
                selected={days === LIFETIME_DAYS_DEFAULT}
              >
                {words}
              </option>
            ))}
          </select>
        </div>
        <p>
          <button type="submit" class="primary" disabled={action.isActing}>
            Create the key
          </button>
        </p>
      </form>
      <ActionState action={action} what="Creating the key…">
        {action.fault instanceof OwnGatewayFault ? undefined : 'Choose at least one use.'}
      </ActionState>
      {made !== null && <NewKey of={made} onDone={() => setMade(null)} />}
    </details>
  )
}

function NewKey({ of: key, onDone }: { readonly of: NewKeyReply; readonly onDone: () => void }) {
  return (
    <div class="notice good" role="status">
      <p>
        This is the key <OutsideText text={key.name} isOneLine={true} shownMax={100} />. It is shown
        only once: copy it now.
      </p>
      <p class="row">
        <code class="secret">{key.key}</code>
        <CopyButton text={key.key} what="the new key" />
      </p>
      <p>
        <button type="button" onClick={onDone}>
          I have it
        </button>
      </p>
    </div>
  )
}

const OWN_END = 'own'

/** A new key must not outlive this session's key. */
function lifetimesFor(
  ownEnd: number | null,
): readonly (readonly [string, number | string | null])[] {
  if (ownEnd === null) return LIFETIMES
  const leftDays = (ownEnd - Date.now() / 1000) / DAY_SECONDS
  const shorter = LIFETIMES.filter(([, days]) => days !== null && days < leftDays)
  return [...shorter, ['as your own key does', OWN_END]]
}

/** Unix seconds. Null when the key never expires. */
function endOf(days: FormDataEntryValue | null, ownEnd: number | null): number | null {
  if (days === OWN_END) return ownEnd
  return days === '' ? null : Math.floor(Date.now() / 1000) + Number(days) * DAY_SECONDS
}
