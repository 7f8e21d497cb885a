import { useRef, useState } from 'preact/hooks'
import { askEvidence } from './gateway.ts'
import { Busy, FaultNotice } from './notices.tsx'
import { notFoundWords, readSearchAnswer, type SearchAnswer } from './search-answer.ts'
import { readSearchQuery, type TypedSearch } from './search-query.ts'

type Progress =
  | { readonly kind: 'idle' | 'asking' }
  | { readonly kind: 'unfit'; readonly message: string }
  | { readonly kind: 'failed'; readonly fault: unknown }
  | { readonly kind: 'found'; readonly query: Sought; readonly answer: SearchAnswer }

type Sought = Exclude<TypedSearch, { kind: 'unfit' }>

const TIMEOUT_MS = 15_000

/** Opens the page of a single result, and lists several results. */
export function SearchBox() {
  const [typed, setTyped] = useState('')
  const [progress, setProgress] = useState<Progress>({ kind: 'idle' })
  const round = useRef(0)
  const search = async (event: Event) => {
    event.preventDefault()
    const mine = ++round.current
    const show = (next: Progress) => mine === round.current && setProgress(next)
    const query = readSearchQuery(typed)
    if (query.kind === 'unfit') return show(query)
    show({ kind: 'asking' })
    try {
      const signal = AbortSignal.timeout(TIMEOUT_MS)
      const answer = readSearchAnswer(await askEvidence(`/v1/find?q=${query.text}`, { signal }))
      const [only, ...others] = answer.hits
      if (mine === round.current && only !== undefined && others.length === 0) {
        show({ kind: 'idle' })
        location.assign(only.href)
      } else show({ kind: 'found', query, answer })
    } catch (fault) {
      show({ kind: 'failed', fault })
    }
  }
  const close = () => {
    round.current += 1
    setProgress({ kind: 'idle' })
  }
  return (
    <>
      <search>
        <form class="search" onSubmit={(event) => void search(event)} noValidate={true}>
          <input
            type="search"
            aria-label="Look up"
            placeholder="Hash, notary or block"
            title="The hash of a completion or a transaction, a notary, or a block"
            autocomplete="off"
            autocapitalize="off"
            spellcheck={false}
            maxLength={200}
            value={typed}
            aria-invalid={progress.kind === 'unfit'}
            aria-describedby="search-result"
            onInput={({ currentTarget }) => {
              setTyped(currentTarget.value)
              close()
            }}
          />
          <button type="submit">Look up</button>
        </form>
      </search>
      <div id="search-result" class="search-result" role="status">
        <Result progress={progress} onClose={close} />
      </div>
    </>
  )
}

function Result({
  progress,
  onClose,
}: {
  readonly progress: Progress
  readonly onClose: () => void
}) {
  switch (progress.kind) {
    case 'idle':
      return null
    case 'asking':
      return <Busy what="Looking it up" />
    case 'unfit':
      return <p class="notice warn">{progress.message}</p>
    case 'failed':
      return <FaultNotice fault={progress.fault} />
    case 'found':
      return progress.answer.hits.length === 0 ? (
        <NotFound query={progress.query} answer={progress.answer} />
      ) : (
        <Hits answer={progress.answer} onFollow={onClose} />
      )
  }
}

function Hits({
  answer: { hits, isCut },
  onFollow,
}: {
  readonly answer: SearchAnswer
  readonly onFollow: () => void
}) {
  return (
    <div class="notice">
      <p>{isCut ? 'Found more than these:' : `Found ${hits.length}:`}</p>
      <ul>
        {hits.map(({ href, what }) => (
          <li key={href}>
            <a href={href} onClick={onFollow}>
              {what}
            </a>
          </li>
        ))}
      </ul>
    </div>
  )
}

function NotFound({ query, answer }: { readonly query: Sought; readonly answer: SearchAnswer }) {
  const { found, advice } = notFoundWords(query, answer)
  return (
    <div class="notice warn">
      <p>
        <strong>Not found.</strong> {found}
      </p>
      <p>
        {advice}{' '}
        {query.kind === 'hash' && answer.isRestricted ? (
          <a href={`/c/${query.text.slice(-64)}`}>Open its page</a>
        ) : (
          <a href="/log">See all logs</a>
        )}
      </p>
    </div>
  )
}
