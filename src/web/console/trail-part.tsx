import { useRef, useState } from 'preact/hooks'
import type { AdminAct } from '../../accounts/admin-log-store.ts'
import { OutsideText } from '../kit/outside-text.tsx'
import { MoreOfIt } from './more-of-it.tsx'
import { useSession } from './session.ts'
import { ShortTime } from './short-time.tsx'
import { type Column, Table } from './table.tsx'
import { queryOf, usePages } from './use-pages.ts'

const LOG_PATH = '/v1/admin/log'
const PAGE_MAX = 50

/** The acts of administrators, newest first. */
export function TrailPart() {
  const session = useSession()
  const [query, setQuery] = useState('')
  const pages = usePages<AdminAct>(
    async (cursor, signal) => {
      const more = cursor === null ? '' : `&before=${cursor}`
      const path = `${LOG_PATH}?limit=${PAGE_MAX}${query}${more}`
      const { acts } = await session.ask<{ readonly acts: readonly AdminAct[] }>(path, { signal })
      const last = acts.length < PAGE_MAX ? undefined : acts.at(-1)
      return { items: acts, cursor: last === undefined ? null : String(last.position) }
    },
    [session, query],
  )
  const { items: acts, reload } = pages
  const form = useRef<HTMLFormElement>(null)
  const search = (event: Event) => {
    event.preventDefault()
    setQuery(queryOf(new FormData(form.current ?? undefined)))
    reload()
  }
  return (
    <>
      <h1 tabIndex={-1}>Administration</h1>
      <p>
        This list shows who changed accounts, keys, budgets, enclaves and stored content, and from
        where. The service only adds entries. Keep the output of{' '}
        <code>affidavit admin-log --check</code> in another place, and give it to the next check (
        <code>--expect</code>): this check finds what the owner of the database changed before that
        point.
      </p>
      <search>
        <form ref={form} class="filters dense" onSubmit={search}>
          <div class="field">
            <label for="trail-kind">What (such as key.create)</label>
            <input id="trail-kind" name="kind" maxlength={100} autocomplete="off" />
          </div>
          <div class="field">
            <label for="trail-since">From</label>
            <input id="trail-since" name="since" type="datetime-local" />
          </div>
          <div class="field">
            <label for="trail-until">Until</label>
            <input id="trail-until" name="until" type="datetime-local" />
          </div>
          <button type="submit" class="primary">
            Search
          </button>
        </form>
      </search>
      <Table
        label="What administrators did"
        columns={COLUMNS}
        rows={acts}
        keyOf={({ position }) => position}
        empty="There are no such entries."
      />
      <MoreOfIt of={pages} what="what was done" />
    </>
  )
}

function textColumn(
  title: string,
  textOf: (act: AdminAct) => string,
  kind?: 'name',
): Column<AdminAct> {
  return {
    title,
    ...(kind === undefined ? {} : { kind }),
    cell: (act) => <OutsideText text={textOf(act)} isOneLine={true} shownMax={200} />,
  }
}

const COLUMNS: readonly Column<AdminAct>[] = [
  { title: 'When', cell: ({ at }) => <ShortTime seconds={at} to="second" /> },
  textColumn('Who', ({ who }) => who),
  textColumn('From', ({ from }) => from),
  textColumn('What', ({ kind }) => kind, 'name'),
  textColumn('To what', ({ target }) => target),
  textColumn('Outcome', ({ outcome }) => outcome),
  textColumn('Details', detailsOf),
]

function detailsOf({ details }: AdminAct): string {
  return Object.entries(details)
    .map(([name, value]) => `${name}: ${typeof value === 'string' ? value : JSON.stringify(value)}`)
    .join(', ')
}
