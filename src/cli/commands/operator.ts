import { jsonText, textTable } from '../printable.ts'

// What the commands of a gateway's operator share.

/** Whether to print for programs. */
export type JsonOption = { readonly json?: boolean }

/** Loaded where they are used: they bring the database, and the help needs none. */
export function operations() {
  return import('../operations.ts')
}

/** Prints a list, for programs or as a table. */
export function printList<Item>(
  list: readonly Item[],
  { json = false }: JsonOption,
  { titles, toRow }: { titles: readonly string[]; toRow: (item: Item) => readonly string[] },
): void {
  process.stdout.write(json ? jsonText(list) : textTable(titles, list.map(toRow)))
}
