import { useRef, useState } from 'preact/hooks'
import type { BudgetPageReply, BudgetSetReply } from '../../accounts/budget-acts.ts'
import type { BudgetDescription } from '../../accounts/budgets-store.ts'
import type { KeyHolderReply } from '../../accounts/key-routes.ts'
import { Busy, FaultNotice } from '../kit/notices.tsx'
import { escapeLine, OutsideText } from '../kit/outside-text.tsx'
import { useLoaded } from '../kit/use-loaded.ts'
import { ConfirmButton } from './confirm-button.tsx'
import { useSession } from './session.ts'
import { ShortTime } from './short-time.tsx'
import { type Column, Table } from './table.tsx'
import { ActionState, useAction } from './use-action.tsx'

const BUDGETS_PATH = '/v1/admin/budgets'
const BUDGETS_MAX = 500

type Budget = Omit<BudgetDescription, 'account'>

const COLUMNS: readonly Column<Budget>[] = [
  { title: 'Of', kind: 'name', cell: ({ key }) => <Owner of={key} /> },
  { title: 'What', cell: ({ what }) => what },
  { title: 'In', cell: ({ per }) => PERIODS[per] },
  { title: 'At most', kind: 'number', cell: ({ what, bound }) => formatAmount(what, bound) },
  { title: 'Used', kind: 'number', cell: ({ what, used }) => formatAmount(what, used) },
  { title: 'Left', kind: 'number', cell: ({ what, left }) => formatAmount(what, left) },
  {
    title: 'Renews',
    cell: ({ renews_at: at }) => (at === null ? 'never' : <ShortTime seconds={at} />),
  },
]

export function OwnBudgets({ budgets }: Pick<KeyHolderReply, 'budgets'>) {
  return (
    <>
      <h2>Budgets</h2>
      <Table
        label="Budgets"
        columns={COLUMNS}
        rows={budgets.map(({ key_id: key, ...budget }) => ({ ...budget, key }))}
        keyOf={nameOf}
        empty="You have no budgets. Only the limits apply."
      />
      <p class="faint">
        A call reserves an estimate of its use, and is counted by its real use at its end, so use
        can exceed a budget. Days and months are in UTC. Calls beyond a budget get 429.
      </p>
    </>
  )
}

export function AccountBudgets({ account }: { readonly account: string }) {
  const session = useSession()
  const { value, fault, reload } = useLoaded(
    (signal) =>
      session.ask<BudgetPageReply>(
        `${BUDGETS_PATH}?${new URLSearchParams({ account, limit: String(BUDGETS_MAX) })}`,
        { signal },
      ),
    [session, account],
  )
  const remove = async ({ key, what, per }: Budget) => {
    const query = new URLSearchParams({ account, what, per, ...(key === null ? {} : { key }) })
    await session.ask(`${BUDGETS_PATH}?${query}`, { method: 'DELETE' })
    reload()
  }
  const removal: Column<Budget> = {
    title: 'Actions',
    kind: 'actions',
    cell: (budget) => (
      <ConfirmButton
        label="Remove"
        what={`the budget of ${budget.what} ${PERIODS[budget.per]} of ${budget.key ?? escapeLine(account)}`}
        title="Remove this budget?"
        act={() => remove(budget)}
      >
        <p>It no longer limits calls, and its count of use is deleted.</p>
      </ConfirmButton>
    ),
  }
  return (
    <section aria-labelledby="budgets">
      <h2 id="budgets">
        Budgets of <OutsideText text={account} isOneLine={true} shownMax={100} />
      </h2>
      <SetBudget account={account} onSet={reload} />
      {fault !== null && <FaultNotice fault={fault} onRetry={reload} />}
      {value === null && fault === null && <Busy what="Asking for the budgets…" />}
      <Table
        label="Budgets"
        columns={[...COLUMNS, removal]}
        rows={value === null ? null : value.budgets}
        keyOf={nameOf}
        empty="The account has no budgets."
      />
      {value !== null && value.cursor !== null && (
        <p class="faint">There are more budgets; `affidavit budgets` lists all.</p>
      )}
    </section>
  )
}

function nameOf({ key, what, per }: Pick<Budget, 'key' | 'what' | 'per'>): string {
  return `${key} ${what} ${per}`
}

function Owner({ of: key }: { readonly of: Budget['key'] }) {
  if (key === null) return <>the account</>
  return (
    <>
      key <span class="hex">{key}</span>
    </>
  )
}

const PERIODS = { day: 'a day', month: 'a month', total: 'in all' } as const
const KINDS = ['requests', 'tokens', 'money'] as const

function SetBudget({ account, onSet }: { readonly account: string; readonly onSet: () => void }) {
  const session = useSession()
  const action = useAction()
  const form = useRef<HTMLFormElement>(null)
  const [unbounded, setUnbounded] = useState<readonly string[]>([])
  const set = (event: Event) => {
    event.preventDefault()
    const fields = new FormData(form.current ?? undefined)
    const text = (name: string) => String(fields.get(name) ?? '').trim()
    void action.run(async () => {
      const bound = parseAmount(text('what'), text('bound'))
      if (bound === null) throw new Error('This is not an amount.')
      const whose = text('key') === '' ? { account } : { account, key: text('key') }
      const body = { ...whose, what: text('what'), per: text('per'), bound }
      const reply = await session.ask<BudgetSetReply>(BUDGETS_PATH, { method: 'PUT', body })
      setUnbounded(reply.unbounded_keys)
      form.current?.reset()
      onSet()
    })
  }
  return (
    <form ref={form} class="row" onSubmit={set} aria-label="Set a budget">
      <div class="field">
        <label for="budget-what">Of what</label>
        <select id="budget-what" name="what">
          {KINDS.map((kind) => (
            <option key={kind}>{kind}</option>
          ))}
        </select>
      </div>
      <div class="field">
        <label for="budget-per">In</label>
        <select id="budget-per" name="per">
          {Object.entries(PERIODS).map(([per, words]) => (
            <option key={per} value={per}>
              {words}
            </option>
          ))}
        </select>
      </div>
      <div class="field">
        <label for="budget-bound">At most</label>
        <input id="budget-bound" name="bound" required inputmode="decimal" autocomplete="off" />
      </div>
      <div class="field">
        <label for="budget-key">Only for one key (its id)</label>
        <input id="budget-key" name="key" maxlength={16} autocomplete="off" />
      </div>
      <button type="submit" class="primary" disabled={action.isActing}>
        Set the budget
      </button>
      <ActionState action={action} what="Setting the budget…">
        Give a whole number, or for money a number with at most 9 digits after the point. For a key,
        give the id from the list of keys.
      </ActionState>
      {unbounded.length > 0 && (
        <p role="status">
          The budget does not bound the keys that this key created: {unbounded.join(', ')}. Revoke
          them, or set a budget of the account.
        </p>
      )}
    </form>
  )
}

const NANO = 1_000_000_000n

/**
 * Returns money in billionths, and other amounts unchanged. Null for a text that is not an amount.
 */
function parseAmount(what: string, text: string): number | null {
  const [, whole, fraction] = /^(\d{1,15})(?:\.(\d{1,9}))?$/.exec(text) ?? []
  if (whole === undefined || (fraction !== undefined && what !== 'money')) return null
  const amount =
    what === 'money'
      ? BigInt(whole) * NANO + BigInt((fraction ?? '').padEnd(9, '0'))
      : BigInt(whole)
  return amount > BigInt(Number.MAX_SAFE_INTEGER) ? null : Number(amount)
}

function formatAmount(what: Budget['what'], amount: number): string {
  if (what !== 'money') return amount.toLocaleString('en')
  const fraction = String(BigInt(amount) % NANO)
    .padStart(9, '0')
    .replace(/0+$/, '')
  const whole = (BigInt(amount) / NANO).toLocaleString('en')
  return fraction === '' ? whole : `${whole}.${fraction}`
}
