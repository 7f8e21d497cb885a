import type { Operator } from '../../api/context.ts'
import { ApiError, ValidationError } from '../../api/errors.ts'
import type { Logger } from '../../observability/logger.ts'
import type { EraseRecords } from './erasures.ts'
import { dialectRecordText, fillPage, recordText } from './record-text.ts'
import {
  NO_FILTERS,
  type RecordFilters,
  type RecordsStore,
  type StoredRecord,
} from './records-store.ts'
import { createContentSearch } from './search-content.ts'
import { scopeOfViewer, type Viewer } from './viewer.ts'

type HistoryPageQuery = {
  readonly viewer: Viewer
  readonly filter: 'all' | 'mine'
  readonly limit: number
  readonly cursor: string | null
  readonly filters?: RecordFilters
  /** Default: false. */
  readonly showsDialect?: boolean
  /** The content must contain this text. Only for the viewer's own records. */
  readonly text?: string | null
}

/** The methods return JSON texts, in the form of the interface (2.4). */
export type History = {
  /**
   * A page (`completions`, `cursor`), newest first. The next page begins after the completion with
   * the id `cursor` (null: the end). Throws ApiError `history_restricted`, and ValidationError for
   * a cursor that is not in the list.
   */
  list(query: HistoryPageQuery): Promise<string>
  /** The first record with this hash that the viewer may see. */
  find(hash: string, viewer: Viewer, showsDialect?: boolean): Promise<string | null>
  /**
   * Erases request and response of the viewer's own records with this hash. Returns the first of
   * these records as it is after the erasure. Null if the viewer has no such record.
   */
  erase(
    hash: string,
    viewer: Viewer,
    order: HistoryErasure,
    showsDialect?: boolean,
  ): Promise<string | null>
}

/** `by` also says where the request comes from. */
type HistoryErasure = { readonly reason: string; readonly by: Operator }

/**
 * `isOpen`: every account may see all completions (`filter=all`, and lookups by hash), as the
 * interface defines it. Otherwise an account sees only its own, except with the scope
 * `history:all`.
 */
export function createHistory(options: {
  readonly records: Pick<RecordsStore, 'list' | 'findByHash'>
  readonly eraseRecords: EraseRecords
  readonly isOpen: boolean
}): History {
  const { records, eraseRecords, isOpen } = options

  async function list(query: HistoryPageQuery): Promise<string> {
    const { filter, viewer } = query
    if (filter === 'all' && scopeOfViewer(viewer, isOpen).accountId !== null)
      throw new ApiError(
        'history_restricted',
        'This service shows each account its own completions only',
      )
    const { filters = NO_FILTERS, text = null, showsDialect = false } = query
    const accountId = filter === 'all' ? null : viewer.accountId
    if (text !== null && accountId === null) throw notOwn()
    const search =
      text === null
        ? null
        : createContentSearch(records, { accountId: viewer.accountId, filters, text })
    const { texts, cursor } = await fillPage({
      limit: query.limit,
      cursor: query.cursor,
      cursorOf: ({ id }) => id,
      textOf: textFor(showsDialect),
      read: async (after, limit) => {
        if (search !== null) return known(await search(after, limit))
        const page = known(await records.list({ accountId, limit, cursor: after, filters }))
        const { cursor: endsAt } = page
        return {
          records: page.records,
          hasMore: endsAt !== null,
          ...(page.isCut ? { endsAt } : {}),
        }
      },
    })
    return `{"completions":[${texts.join()}],"cursor":${JSON.stringify(cursor)}}`
  }

  async function find(hash: string, viewer: Viewer, showsDialect = false): Promise<string | null> {
    const record = await records.findByHash(hash, scopeOfViewer(viewer, isOpen))
    return record && textFor(showsDialect)(record)
  }

  async function erase(
    hash: string,
    { accountId }: Viewer,
    { reason, by }: HistoryErasure,
    showsDialect = false,
  ): Promise<string | null> {
    await eraseRecords({ hash, accountId }, { by: 'account', reason }, by)
    const record = await records.findByHash(hash, { accountId })
    return record && textFor(showsDialect)(record)
  }

  return { list, find, erase }
}

function textFor(showsDialect: boolean): (record: StoredRecord) => string {
  return showsDialect ? dialectRecordText : recordText
}

function known<Page>(page: Page | 'unknown_cursor'): Page {
  if (page === 'unknown_cursor') throw unknownCursor()
  return page
}

function notOwn(): ValidationError {
  const msg = 'Input should come with filter=mine: a search covers only your own completions'
  return new ValidationError([{ loc: ['query', 'q'], msg, type: 'value_error' }])
}

function unknownCursor(): ValidationError {
  const msg = 'Input should be the cursor of a page of this list'
  return new ValidationError([{ loc: ['query', 'cursor'], msg, type: 'value_error' }])
}

/** Warns of an open history, except in development, where one person owns all accounts. */
export function warnOfOpenHistory(
  {
    isHistoryOpen,
    isProduction,
  }: { readonly isHistoryOpen: boolean; readonly isProduction: boolean },
  log: Pick<Logger, 'warn'>,
): void {
  if (isHistoryOpen && isProduction)
    log.warn(
      {},
      'HISTORY_ALL is true: every account can read the prompts and answers of all accounts',
    )
}
