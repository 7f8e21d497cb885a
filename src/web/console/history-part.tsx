import { useRef, useState } from 'preact/hooks'
import type { RecordListReply, StoredRecordReply } from '../../verified/record-replies.ts'
import { State, type Tone } from '../kit/notices.tsx'
import { OutsideText } from '../kit/outside-text.tsx'
import { saveFile } from '../kit/save-file.ts'
import { Count, Time } from '../kit/values.tsx'
import { ConfirmButton } from './confirm-button.tsx'
import { MoreOfIt } from './more-of-it.tsx'
import { may, useSession } from './session.ts'
import { ActionState, useAction } from './use-action.tsx'
import { queryOf, usePages } from './use-pages.ts'

const HISTORY_PATH = '/v1/verified/chat/completions'
/** Completions of a page: each may have megabytes. */
const PAGE_MAX = 20

/** The stored completions, newest first: searched, read, and saved with their evidence. */
export function HistoryPart() {
  const [query, setQuery] = useState('')
  const session = useSession()
  const pages = usePages<StoredRecordReply>(
    async (cursor, signal) => {
      const more = cursor === null ? '' : `&cursor=${encodeURIComponent(cursor)}`
      const path = `${HISTORY_PATH}?limit=${PAGE_MAX}${query}${more}`
      const { completions, ...page } = await session.ask<RecordListReply>(path, { signal })
      return { ...page, items: completions }
    },
    [session, query],
  )
  const { items: records, hasMore, reload, change } = pages
  const replace = (changed: StoredRecordReply) =>
    change((one) => (one.hash === changed.hash ? { ...changed, id: one.id } : one))
  const isFiltered = query !== ''
  return (
    <>
      <h1 tabIndex={-1}>History</h1>
      <p>
        Verified completions as they are stored. Encrypted completions have no content here: only
        their caller has the content.
      </p>
      <Filters onSearch={setQuery} onReload={reload} />
      <p class="line-place" role="status">
        {records !== null && foundText(records.length, { hasMore, isFiltered })}
      </p>
      <ol class="records">
        {records?.map((record) => (
          <li key={record.id}>
            <RecordView record={record} onChange={replace} />
          </li>
        ))}
      </ol>
      <MoreOfIt of={pages} what="completions" />
    </>
  )
}

function foundText(
  count: number,
  { hasMore, isFiltered }: { readonly hasMore: boolean; readonly isFiltered: boolean },
): string {
  if (count > 0) return `${count} shown, ${hasMore ? 'there are more' : 'all there are'}.`
  // A search looks into so many at a time.
  if (hasMore) return 'Nothing matches so far, but there are older completions.'
  return isFiltered
    ? 'Nothing matches. Use fewer filters.'
    : 'There are no completions yet. Ask something in the playground.'
}

function Filters({
  onSearch,
  onReload,
}: {
  readonly onSearch: (query: string) => void
  readonly onReload: () => void
}) {
  const session = useSession()
  const form = useRef<HTMLFormElement>(null)
  const search = (event: Event) => {
    event.preventDefault()
    const query = queryOf(new FormData(form.current ?? undefined))
    onSearch(query)
    onReload()
  }
  return (
    <search>
      <form ref={form} class="card filters" onSubmit={search}>
        <div class="field">
          <label for="history-q">Words in the text</label>
          <input id="history-q" name="q" type="search" maxlength={200} />
        </div>
        <div class="field">
          <label for="history-model">Model</label>
          <input id="history-model" name="model" maxlength={256} autocomplete="off" />
        </div>
        <div class="field">
          <label for="history-outcome">Outcome</label>
          <select id="history-outcome" name="outcome">
            <option value="">any</option>
            {Object.entries(OUTCOMES).map(([outcome, [, words]]) => (
              <option key={outcome} value={outcome}>
                {words}
              </option>
            ))}
          </select>
        </div>
        <div class="field">
          <label for="history-encrypted">Encrypted</label>
          <select id="history-encrypted" name="encrypted">
            <option value="">either</option>
            <option value="true">encrypted</option>
            <option value="false">not encrypted</option>
          </select>
        </div>
        <div class="field">
          <label for="history-since">From</label>
          <input id="history-since" name="since" type="datetime-local" />
        </div>
        <div class="field">
          <label for="history-until">Until</label>
          <input id="history-until" name="until" type="datetime-local" />
        </div>
        {may(session, 'history:all') && (
          <div class="field">
            <label for="history-filter">Whose</label>
            <select id="history-filter" name="filter">
              <option value="">this account's</option>
              <option value="all">everybody's</option>
            </select>
          </div>
        )}
        <button type="submit" class="primary">
          Search
        </button>
      </form>
    </search>
  )
}

/** How an answer ended, as its receipt says. */
const OUTCOMES: Readonly<Record<StoredRecordReply['receipt']['outcome'], readonly [Tone, string]>> =
  {
    complete: ['good', 'complete'],
    client_disconnected: ['warn', 'caller disconnected'],
    upstream_error: ['warn', 'provider failed'],
  }

function RecordView({
  record,
  onChange,
}: {
  readonly record: StoredRecordReply
  readonly onChange: (record: StoredRecordReply) => void
}) {
  const { receipt, request, response } = record
  const [tone, words] = OUTCOMES[receipt.outcome]
  const isEncrypted = receipt.version !== 1 && receipt.encrypted
  const question = request === null ? null : textOf(request.messages.at(-1)?.content)
  const answer = response === null ? null : answerOf(response)
  return (
    <article class="card" aria-label={`Completion ${record.hash.slice(0, 12)}`}>
      <p class="row">
        <Time ms={record.created_at * 1000} />
        <strong>
          <OutsideText text={receipt.model.requested} isOneLine={true} shownMax={100} />
        </strong>
        <State tone={tone}>{words}</State>
        {isEncrypted && <State tone="good">encrypted</State>}
        {record.erased && <State tone="open">erased</State>}
        <span class="hex faint">{record.hash.slice(0, 16)}…</span>
      </p>
      {question !== null && (
        <p>
          <OutsideText text={excerptOf(question)} isOneLine={true} />
        </p>
      )}
      {answer !== null && (
        <p class="faint">
          <OutsideText text={excerptOf(answer)} isOneLine={true} />
        </p>
      )}
      <Missing record={record} />
      <RecordActions {...{ record, onChange }} />
      <Content record={record} />
    </article>
  )
}

/** Characters of a question and an answer in the list. */
const EXCERPT_LENGTH_MAX = 200

function excerptOf(text: string): string {
  return text.length > EXCERPT_LENGTH_MAX ? `${text.slice(0, EXCERPT_LENGTH_MAX)}…` : text
}

/** Why there is no content to be read. */
function Missing({
  record: { request, receipt, erased, withheld },
}: {
  readonly record: StoredRecordReply
}) {
  if (erased !== undefined)
    return (
      <p class="faint">
        Erased by {erased.by === 'retention' ? 'a retention rule' : `the ${erased.by}`} on{' '}
        <Time ms={erased.at * 1000} />:{' '}
        <OutsideText text={erased.reason} isOneLine={true} shownMax={300} />
      </p>
    )
  if (withheld !== undefined)
    return (
      <p class="notice warn">
        The content is stored, but cannot be read now:{' '}
        <OutsideText text={withheld.message} isOneLine={true} shownMax={300} /> Tell the operator.
      </p>
    )
  if (request !== null) return null
  const isEncrypted = receipt.version !== 1 && receipt.encrypted
  return (
    <p class="faint">
      {isEncrypted ? 'The content of an encrypted call is not stored.' : 'There is no content.'}
    </p>
  )
}

function RecordActions({
  record: { hash, request },
  onChange,
}: {
  readonly record: StoredRecordReply
  readonly onChange: (record: StoredRecordReply) => void
}) {
  const session = useSession()
  const erase = async () =>
    onChange(await session.ask<StoredRecordReply>(`${HISTORY_PATH}/${hash}`, { method: 'DELETE' }))
  const action = useAction()
  const save = () =>
    action.run(async () => {
      const text = await session.askText(`${HISTORY_PATH}/${hash}/evidence`)
      saveFile(`evidence-${hash.slice(0, 12)}.json`, text)
    })
  return (
    <>
      <div class="row">
        <button type="button" disabled={action.isActing} onClick={() => void save()}>
          Save the evidence
        </button>
        <a href={`/c/${hash}`} target="_blank" rel="noopener opener">
          Public evidence
        </a>
        <a href="/verify" target="_blank" rel="noopener opener">
          Verify a saved file
        </a>
        {request !== null && (
          <ConfirmButton
            label="Erase"
            what={`the content of ${hash.slice(0, 12)}`}
            title="Erase question and answer?"
            act={erase}
          >
            <p>
              This service deletes them forever. The proofs stay. If you want to show the text
              later, save the evidence first. Backups may still have the text.
            </p>
          </ConfirmButton>
        )}
      </div>
      <ActionState action={action} what="Asking for the evidence…" />
    </>
  )
}

/** Made when it is opened: a completion may have megabytes. */
function Content({ record }: { readonly record: StoredRecordReply }) {
  const [isOpen, setIsOpen] = useState(false)
  const { request, response, receipt, usage } = record
  const tokens = usage ?? usageOf(response)
  return (
    <details onToggle={({ currentTarget }) => setIsOpen(currentTarget.open)}>
      <summary>Everything that is stored</summary>
      {isOpen && (
        <>
          <dl class="facts">
            <div>
              <dt>Provider</dt>
              <dd>
                <OutsideText
                  text={`${receipt.provider.name}, ${receipt.provider.origin}`}
                  isOneLine={true}
                  shownMax={300}
                />
              </dd>
            </div>
            <div>
              <dt>Took</dt>
              <dd>
                <Count value={receipt.finished_at - receipt.started_at} /> ms
              </dd>
            </div>
            {tokens !== null && (
              <div>
                <dt>Tokens</dt>
                <dd>
                  <Count value={tokens.prompt_tokens} /> in,{' '}
                  <Count value={tokens.completion_tokens} /> out
                </dd>
              </div>
            )}
            <div>
              <dt>Leaf</dt>
              <dd>
                <Count value={receipt.index} />
              </dd>
            </div>
          </dl>
          {request !== null && <JsonView label="Request" value={request} />}
          {response !== null && <JsonView label="Response" value={response} />}
          <JsonView label="Receipt" value={receipt} />
        </>
      )}
    </details>
  )
}

function JsonView({ label, value }: { readonly label: string; readonly value: object }) {
  return (
    <>
      <h2>{label}</h2>
      {/* biome-ignore lint/a11y/noNoninteractiveTabindex: what scrolls is to be reached by keys. */}
      <section class="scroll" aria-label={label} tabIndex={0}>
        <pre>
          <OutsideText text={JSON.stringify(value, null, 2)} />
        </pre>
      </section>
    </>
  )
}

/** Of a message: its text, or that of its parts; other parts are named. */
function textOf(content: unknown): string {
  if (typeof content === 'string') return content
  if (!Array.isArray(content)) return ''
  return content
    .map((part: unknown) => {
      const { type, text } = Object(part) as { readonly type?: unknown; readonly text?: unknown }
      return typeof text === 'string' ? text : `[${typeof type === 'string' ? type : 'part'}]`
    })
    .join(' ')
}

function answerOf(response: NonNullable<StoredRecordReply['response']>): string {
  const message: unknown = response.choices[0]?.message
  const { content, refusal } = Object(message) as {
    readonly content?: unknown
    readonly refusal?: unknown
  }
  return textOf(content) || textOf(refusal)
}

type Usage = { readonly prompt_tokens: number; readonly completion_tokens: number }

function usageOf(response: StoredRecordReply['response']): Usage | null {
  return response?.usage ?? null
}
