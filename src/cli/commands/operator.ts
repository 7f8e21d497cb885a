import { InvalidArgumentError } from 'commander'
import { jsonText, textTable } from '../printable.ts'

export type JsonOption = { readonly json?: boolean }

/** Loads the modules only when needed, because they load the database. */
export function operations() {
  return import('../operations.ts')
}

export async function allPages<Page extends { readonly cursor: string | null }>(
  read: (cursor: string | null) => Promise<Page>,
): Promise<readonly Page[]> {
  const pages = [await read(null)]
  for (let cursor = pages[0]?.cursor ?? null; cursor !== null; ) {
    const page = await read(cursor)
    pages.push(page)
    cursor = page.cursor
  }
  return pages
}

export function printList<Item>(
  list: readonly Item[],
  { json = false }: JsonOption,
  { titles, toRow }: { titles: readonly string[]; toRow: (item: Item) => readonly string[] },
): void {
  process.stdout.write(json ? jsonText(list) : textTable(titles, list.map(toRow)))
}

/** The text is a date or time in UTC. Returns Unix seconds. Throws InvalidArgumentError. */
export function parseTime(text: string): number {
  const isTime = /^\d{4}-\d{2}-\d{2}(T\d{2}:\d{2}(:\d{2})?Z)?$/.test(text)
  const ms = isTime ? Date.parse(text) : Number.NaN
  // Date.parse moves a day that the month does not have to the next month.
  const isDay = !Number.isNaN(ms) && new Date(ms).toISOString().startsWith(text.slice(0, 10))
  if (isDay) return Math.floor(ms / 1000)
  throw new InvalidArgumentError('expected a date such as 2027-01-31, or 2027-01-31T12:00Z')
}
