import { useRef, useState } from 'preact/hooks'
import type { Tone } from '../kit/notices.tsx'
import { ALL_CALLS, type Call, type Wanted } from './calls.ts'
import { may, useSession } from './session.ts'
import { queryOf } from './use-pages.ts'

export const OUTCOME_LABELS: Readonly<Record<Call['receipt']['outcome'], readonly [Tone, string]>> =
  {
    complete: ['good', 'complete'],
    client_disconnected: ['warn', 'caller disconnected'],
    upstream_error: ['warn', 'provider failed'],
  }

export const DIALECT_LABELS: Readonly<Record<Call['dialect'], string>> = {
  chat: 'Chat',
  responses: 'Responses',
  messages: 'Messages',
}

const HASH = /^(?:0x)?([0-9a-f]{64})$/i

/** Ignores the other filters if the text is a complete hash. */
function wantedOf(fields: FormData): Wanted {
  const [, hash] = HASH.exec(String(fields.get('q') ?? '').trim()) ?? []
  return hash === undefined ? { kind: 'query', query: queryOf(fields) } : { kind: 'hash', hash }
}

/** On a narrow screen the filters are folded, so that the calls come first. */
export function HistoryFilters({ onSearch }: { readonly onSearch: (wanted: Wanted) => void }) {
  const session = useSession()
  const form = useRef<HTMLFormElement>(null)
  const [isOpen, setIsOpen] = useState(false)
  const search = (event: Event) => {
    event.preventDefault()
    onSearch(wantedOf(new FormData(form.current ?? undefined)))
    setIsOpen(false)
  }
  const clear = () => {
    form.current?.reset()
    onSearch(ALL_CALLS)
  }
  return (
    <search>
      <button
        type="button"
        class="fold"
        aria-expanded={isOpen}
        aria-controls="history-filters"
        onClick={() => setIsOpen(!isOpen)}
      >
        Filters
      </button>
      <form
        id="history-filters"
        ref={form}
        class={isOpen ? 'filters dense' : 'filters dense folded'}
        onSubmit={search}
      >
        <div class="field grow">
          <label for="history-q">Words in the text, or a hash</label>
          <input id="history-q" name="q" type="search" maxlength={200} />
        </div>
        <div class="field">
          <label for="history-model">Model</label>
          <input id="history-model" name="model" maxlength={256} autocomplete="off" />
        </div>
        <div class="field">
          <label for="history-provider">Provider</label>
          <input id="history-provider" name="provider" maxlength={100} autocomplete="off" />
        </div>
        <div class="field">
          <label for="history-dialect">API</label>
          <select id="history-dialect" name="dialect">
            <option value="">any</option>
            {Object.entries(DIALECT_LABELS).map(([dialect, words]) => (
              <option key={dialect} value={dialect}>
                {words}
              </option>
            ))}
          </select>
        </div>
        <div class="field">
          <label for="history-outcome">Outcome</label>
          <select id="history-outcome" name="outcome">
            <option value="">any</option>
            {Object.entries(OUTCOME_LABELS).map(([outcome, [, words]]) => (
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
        {may(session, 'history:all') && (
          <div class="field">
            <label for="history-filter">Accounts</label>
            <select id="history-filter" name="filter">
              <option value="">this account</option>
              <option value="all">all accounts</option>
            </select>
          </div>
        )}
        <div class="row">
          <div class="field">
            <label for="history-since">From</label>
            <input id="history-since" name="since" type="datetime-local" />
          </div>
          <div class="field">
            <label for="history-until">Until</label>
            <input id="history-until" name="until" type="datetime-local" />
          </div>
          <button type="submit" class="primary">
            Search
          </button>
          <button type="button" onClick={clear}>
            Reset
          </button>
        </div>
      </form>
    </search>
  )
}
