import { useRef, useState } from 'preact/hooks'
import type { AccountDescription, AccountPageReply } from '../../accounts/account-acts.ts'
import { State } from '../kit/notices.tsx'
import { escapeLine, OutsideText } from '../kit/outside-text.tsx'
import { Hex } from '../kit/values.tsx'
import { AccountBudgets } from './budgets.tsx'
import { ConfirmButton } from './confirm-button.tsx'
import { MoreOfIt } from './more-of-it.tsx'
import { useSession } from './session.ts'
import { ShortTime } from './short-time.tsx'
import { type Column, Table } from './table.tsx'
import { ActionState, useAction } from './use-action.tsx'
import { usePages } from './use-pages.ts'

const ACCOUNTS_PATH = '/v1/admin/accounts'
const PAGE_MAX = 50

export function AccountsPart() {
  const session = useSession()
  const [chosen, setChosen] = useState<string | null>(null)
  const pages = usePages<AccountDescription>(
    async (cursor, signal) => {
      const more = cursor === null ? '' : `&cursor=${encodeURIComponent(cursor)}`
      const path = `${ACCOUNTS_PATH}?limit=${PAGE_MAX}${more}`
      const { accounts, ...page } = await session.ask<AccountPageReply>(path, { signal })
      return { ...page, items: accounts }
    },
    [session],
  )
  const { items: accounts, reload } = pages
  const closeAndReload = () => {
    setChosen(null)
    reload()
  }
  return (
    <>
      <h1 tabIndex={-1}>Accounts</h1>
      <p>
        The customers of this service. An account has keys, its own history, budgets, and a tier.
        The tier says how much it may use.
      </p>
      <OpenAccount onOpened={reload} />
      <h2>Existing accounts</h2>
      <Table
        label="Accounts"
        columns={columnsOf({ onBudgets: setChosen, onSet: reload, onGone: closeAndReload })}
        rows={accounts}
        keyOf={({ id }) => id}
        empty="There are no accounts yet. Create an account above."
      />
      <MoreOfIt of={pages} what="accounts" />
      {chosen !== null && <AccountBudgets key={chosen} account={chosen} />}
    </>
  )
}

function columnsOf({
  onBudgets,
  onSet,
  onGone,
}: {
  readonly onBudgets: (name: string) => void
  readonly onSet: () => void
  /** Called after a change of the account's state. The account may then have no budgets. */
  readonly onGone: () => void
}): readonly Column<AccountDescription>[] {
  return [
    {
      title: 'Name',
      kind: 'name',
      cell: ({ name }) => <OutsideText text={name} isOneLine={true} shownMax={100} />,
    },
    { title: 'Id', cell: ({ id }) => <Hex value={id} digits={8} /> },
    { title: 'Created', cell: ({ created_at: at }) => <ShortTime seconds={at} to="day" /> },
    { title: 'State', cell: (account) => <AccountState {...account} /> },
    { title: 'Tier', cell: (account) => <TierForm account={account} onSet={onSet} /> },
    {
      title: 'Actions',
      kind: 'actions',
      cell: (account) => (
        <>
          <button
            type="button"
            class="small"
            aria-label={`Budgets of ${escapeLine(account.name)}`}
            onClick={() => onBudgets(account.name)}
          >
            Budgets
          </button>
          <StateButtons account={account} onSet={onGone} />
        </>
      ),
    },
  ]
}

function AccountState({ disabled_at: at }: Pick<AccountDescription, 'disabled_at'>) {
  if (at === null) return <State tone="good">active</State>
  return (
    <>
      <State tone="warn">disabled</State> <ShortTime seconds={at} to="day" />
    </>
  )
}

function StateButtons({
  account: { id, name, disabled_at: disabledAt },
  onSet,
}: {
  readonly account: AccountDescription
  readonly onSet: () => void
}) {
  const session = useSession()
  const shown = <OutsideText text={name} isOneLine={true} shownMax={100} />
  const own = id === session.holder.account_id && (
    <p>You are signed in with a key of this account: this key is refused, too.</p>
  )
  const set = (state: 'active' | 'disabled') => async () => {
    await session.ask(`${ACCOUNTS_PATH}/state`, { method: 'PUT', body: { name, state } })
    onSet()
  }
  const remove = async () => {
    await session.ask(`${ACCOUNTS_PATH}?${new URLSearchParams({ name })}`, { method: 'DELETE' })
    onSet()
  }
  const what = escapeLine(name)
  return (
    <>
      {disabledAt === null ? (
        <ConfirmButton
          label="Disable"
          what={what}
          title="Disable this account?"
          act={set('disabled')}
        >
          <p>Calls with keys of {shown} get 403 within a second. Running calls end as usual.</p>
          {own}
        </ConfirmButton>
      ) : (
        <ConfirmButton label="Enable" what={what} title="Enable this account?" act={set('active')}>
          <p>Keys of {shown} are accepted again within a second.</p>
        </ConfirmButton>
      )}
      <ConfirmButton label="Delete" what={what} title="Delete this account?" act={remove}>
        <p>
          The keys of {shown} are revoked forever, and its name is free. This cannot be undone. Its
          records and their proofs stay. To remove its content, erase the content first.
        </p>
        {own}
      </ConfirmButton>
    </>
  )
}

function TierForm({
  account: { name, tier },
  onSet,
}: {
  readonly account: AccountDescription
  readonly onSet: () => void
}) {
  const session = useSession()
  const action = useAction()
  const field = useRef<HTMLInputElement>(null)
  const set = (event: Event) => {
    event.preventDefault()
    const given = field.current?.value.trim() ?? ''
    void action.run(async () => {
      const body = { name, tier: given === '' ? null : given }
      await session.ask(ACCOUNTS_PATH, { method: 'PUT', body })
      onSet()
    })
  }
  return (
    <form class="row tier" onSubmit={set}>
      <input
        ref={field}
        aria-label={`Tier of ${name}`}
        placeholder="standard"
        maxlength={100}
        autocomplete="off"
        defaultValue={tier ?? ''}
      />
      <button type="submit" class="small" disabled={action.isActing} aria-label={`Set ${name}`}>
        Set
      </button>
      <ActionState action={action} what="Setting the tier…">
        Give the name of a tier from the gateway's tiers file. Leave the field empty for the default
        tier.
      </ActionState>
    </form>
  )
}

function OpenAccount({ onOpened }: { readonly onOpened: () => void }) {
  const session = useSession()
  const action = useAction()
  const field = useRef<HTMLInputElement>(null)
  const open = (event: Event) => {
    event.preventDefault()
    void action.run(async () => {
      const body = { name: field.current?.value ?? '' }
      await session.ask(ACCOUNTS_PATH, { method: 'POST', body })
      if (field.current !== null) field.current.value = ''
      onOpened()
    })
  }
  return (
    <details class="card">
      <summary>Create an account</summary>
      <form class="row" onSubmit={open}>
        <div class="field">
          <label for="account-name">Name of the new account</label>
          <input id="account-name" ref={field} required maxlength={100} autocomplete="off" />
        </div>
        <button type="submit" class="primary" disabled={action.isActing}>
          Create the account
        </button>
      </form>
      <ActionState action={action} what="Creating the account…" />
    </details>
  )
}
