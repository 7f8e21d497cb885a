import './history.css'
import { useMemo, useRef, useState } from 'preact/hooks'
import { State } from '../kit/notices.tsx'
import { OutsideText } from '../kit/outside-text.tsx'
import { Count } from '../kit/values.tsx'
import { AnchorStateLabel } from './anchor-state.tsx'
import { CallPanel } from './call-panel.tsx'
import {
  ALL_CALLS,
  type Call,
  questionOf,
  readCalls,
  shortHash,
  tokensOf,
  type Wanted,
} from './calls.ts'
import { ExportButtons } from './export-buttons.tsx'
import { DIALECT_LABELS, HistoryFilters, OUTCOME_LABELS } from './history-filters.tsx'
import { MoreOfIt } from './more-of-it.tsx'
import { useSession } from './session.ts'
import { ShortTime } from './short-time.tsx'
import { type Column, Table } from './table.tsx'
import { anchorOf, type CallAnchors, useCallAnchors } from './use-call-anchors.ts'
import { usePages } from './use-pages.ts'

/** Few calls per page, because a call may have megabytes. */
const PAGE_MAX = 50
const EXCERPT_LENGTH_MAX = 120

/** The stored calls, newest first. */
export function HistoryPart() {
  const session = useSession()
  const [wanted, setWanted] = useState(ALL_CALLS)
  const [chosen, setChosen] = useState<ReadonlySet<string>>(new Set())
  const [openId, setOpenId] = useState<string | null>(null)
  const opener = useRef<HTMLElement | null>(null)
  const pages = usePages<Call>(
    (cursor, signal) => readCalls(session, { wanted, cursor, limit: PAGE_MAX, signal }),
    [session, wanted],
  )
  const { items: calls, hasMore, change } = pages
  const anchors = useCallAnchors(calls)
  const open = calls?.find(({ id }) => id === openId)

  const search = (next: Wanted) => {
    setChosen(new Set())
    setOpenId(null)
    setWanted(next)
  }
  const choose = (id: string, isChosen: boolean) => {
    const next = new Set(chosen)
    if (isChosen) next.add(id)
    else next.delete(id)
    setChosen(next)
  }
  const close = () => {
    setOpenId(null)
    opener.current?.focus()
  }
  return (
    <>
      <h1 tabIndex={-1}>History</h1>
      <HistoryFilters onSearch={search} />
      <div class="toolbar">
        <p class="line-place" role="status">
          {calls !== null && foundText(calls.length, { hasMore, isAll: wanted === ALL_CALLS })}
        </p>
        <div class="row">
          <label class="choice">
            <input
              type="checkbox"
              disabled={calls === null || calls.length === 0}
              checked={calls !== null && calls.length > 0 && chosen.size === calls.length}
              onChange={({ currentTarget }) =>
                setChosen(new Set(currentTarget.checked ? calls?.map(({ id }) => id) : []))
              }
            />{' '}
            Select all shown
          </label>
          {chosen.size > 0 && (
            <button type="button" class="small" onClick={() => setChosen(new Set())}>
              Clear {chosen.size} selected
            </button>
          )}
          <ExportButtons
            wanted={wanted}
            calls={calls?.filter(({ id }) => chosen.has(id)) ?? []}
            anchors={anchors}
          />
        </div>
      </div>
      <div class={open === undefined ? 'with-panel' : 'with-panel open'}>
        <Table
          label="Calls"
          name="calls"
          columns={columnsOf({
            anchors,
            chosen,
            onChosen: choose,
            onOpen: (id, button) => {
              opener.current = button
              setOpenId(id)
            },
          })}
          rows={calls}
          keyOf={({ id }) => id}
          currentKey={openId}
          empty=""
        />
        {open !== undefined && (
          <CallPanel
            key={open.id}
            call={open}
            anchor={anchorOf(anchors, open)}
            onClose={close}
            onChange={(changed) =>
              change((one) => (one.hash === changed.hash ? { ...changed, id: one.id } : one))
            }
          />
        )}
      </div>
      <MoreOfIt of={pages} what="calls" />
    </>
  )
}

function foundText(
  count: number,
  { hasMore, isAll }: { readonly hasMore: boolean; readonly isAll: boolean },
): string {
  if (count > 0) return `${count} shown, ${hasMore ? 'there are more' : 'all there are'}.`
  // One search examines only a limited number of calls.
  if (hasMore) return 'Nothing matches so far, but there are older calls.'
  return isAll
    ? 'There are no calls yet. Ask something in the playground.'
    : 'Nothing matches. Use fewer filters.'
}

function columnsOf({
  anchors,
  chosen,
  onChosen,
  onOpen,
}: {
  readonly anchors: CallAnchors
  readonly chosen: ReadonlySet<string>
  readonly onChosen: (id: string, isChosen: boolean) => void
  readonly onOpen: (id: string, button: HTMLElement) => void
}): readonly Column<Call>[] {
  return [
    {
      title: 'Selected',
      kind: 'choice',
      cell: (call) => (
        <input
          type="checkbox"
          aria-label={`Select ${shortHash(call)}`}
          checked={chosen.has(call.id)}
          onChange={({ currentTarget }) => onChosen(call.id, currentTarget.checked)}
        />
      ),
    },
    { title: 'Time', cell: ({ created_at: at }) => <ShortTime seconds={at} to="second" /> },
    {
      title: 'Model',
      kind: 'name',
      cell: ({ receipt }) => (
        <OutsideText text={receipt.model.requested} isOneLine={true} shownMax={100} />
      ),
    },
    {
      title: 'Provider',
      isExtra: true,
      cell: ({ receipt }) => (
        <OutsideText text={receipt.provider.name} isOneLine={true} shownMax={60} />
      ),
    },
    { title: 'API', isExtra: true, cell: ({ dialect }) => DIALECT_LABELS[dialect] },
    { title: 'Outcome', cell: (call) => <Outcome call={call} /> },
    { title: 'Tokens', kind: 'number', cell: (call) => <Tokens call={call} /> },
    {
      title: 'Hash',
      cell: (call) => (
        <button
          type="button"
          class="link hex"
          aria-label={`Details of ${shortHash(call)}`}
          onClick={({ currentTarget }) => onOpen(call.id, currentTarget)}
        >
          {shortHash(call)}
        </button>
      ),
    },
    { title: 'Anchor', isSteady: true, cell: (call) => <Anchor of={call} anchors={anchors} /> },
    { title: 'Question', kind: 'excerpt', isExtra: true, cell: (call) => <Question call={call} /> },
  ]
}

function Outcome({ call: { receipt } }: { readonly call: Call }) {
  const [tone, words] = OUTCOME_LABELS[receipt.outcome]
  return <State tone={tone}>{words}</State>
}

function Tokens({ call }: { readonly call: Call }) {
  const tokens = tokensOf(call)
  if (tokens === null) return <span class="faint">–</span>
  return (
    <>
      <Count value={tokens.prompt_tokens} />
      <span class="faint"> in</span> <Count value={tokens.completion_tokens} />
      <span class="faint"> out</span>
    </>
  )
}

function Anchor({ of: call, anchors }: { readonly of: Call; readonly anchors: CallAnchors }) {
  const anchor = anchorOf(anchors, call)
  return anchor === undefined ? (
    <span class="faint">–</span>
  ) : (
    <AnchorStateLabel state={anchor.state} />
  )
}

/** The beginning of a question, or why it is missing. */
function Question({ call }: { readonly call: Call }) {
  const question = useMemo(() => questionOf(call), [call])
  if (question !== null) return <OutsideText text={excerptOf(question)} isOneLine={true} />
  if (call.erased !== undefined) return <span class="faint">erased</span>
  return <span class="faint">{call.withheld === undefined ? 'encrypted' : 'not readable now'}</span>
}

function excerptOf(text: string): string {
  return text.length > EXCERPT_LENGTH_MAX ? `${text.slice(0, EXCERPT_LENGTH_MAX)}…` : text
}
