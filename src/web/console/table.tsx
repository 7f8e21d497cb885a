import './table.css'
import type { ComponentChildren } from 'preact'

/** A column of a table: its title, and what a row has in it. */
export type Column<Row> = {
  /** Stands above the cells, and in a card before the value. */
  readonly title: string
  /**
   * `name`: names its row, and heads its card. `number`: ends at the right. `actions`: buttons, at
   * the end. `choice`: a box to tick, before the name. `excerpt`: the beginning of a text, as much
   * as there is room for.
   */
  readonly kind?: 'name' | 'number' | 'actions' | 'choice' | 'excerpt'
  /** As wide whatever it says, so that nothing beside it moves. */
  readonly isSteady?: boolean
  /** Left out while a panel stands beside the table. */
  readonly isExtra?: boolean
  readonly cell: (row: Row) => ComponentChildren
}

/**
 * A dense table, a line for each row. On a narrow screen each row is a card: its name and its
 * actions in full, its other values below their titles. The table's place is there before its rows
 * are.
 */
export function Table<Row>({
  label,
  columns,
  rows,
  keyOf,
  empty,
  currentKey = null,
  isSmall = false,
  name = '',
}: {
  readonly label: string
  readonly columns: readonly Column<Row>[]
  /** Null: not there yet. */
  readonly rows: readonly Row[] | null
  readonly keyOf: (row: Row, place: number) => string | number
  /** In the place of rows, when there are no rows. */
  readonly empty: ComponentChildren
  /** Of the row that is looked at. */
  readonly currentKey?: string | number | null
  /** Whether it fits on a narrow screen as it is: then there are no cards. */
  readonly isSmall?: boolean
  /** Its class, where its cards have a layout of their own. */
  readonly name?: string
}) {
  return (
    // biome-ignore lint/a11y/noNoninteractiveTabindex: what scrolls is to be reached by keys.
    <section class={`scroll table-place ${name}`} aria-label={label} tabIndex={0}>
      {rows?.length === 0 && <p class="faint">{empty}</p>}
      {rows !== null && rows.length > 0 && (
        <table class={isSmall ? undefined : 'as-cards'}>
          <thead>
            <tr>
              {columns.map((column) => (
                <th key={column.title} scope="col" class={classOf(column)}>
                  <span class={isTitled(column) ? undefined : 'hidden-text'}>{column.title}</span>
                </th>
              ))}
            </tr>
          </thead>
          <tbody>
            {rows.map((row, place) => {
              const key = keyOf(row, place)
              return (
                <tr key={key} class={key === currentKey ? 'current' : undefined}>
                  {columns.map((column) => (
                    <Cell key={column.title} {...{ column, row }} />
                  ))}
                </tr>
              )
            })}
          </tbody>
        </table>
      )}
    </section>
  )
}

function Cell<Row>({ column, row }: { readonly column: Column<Row>; readonly row: Row }) {
  if (column.kind === 'name')
    return (
      <th scope="row" class={classOf(column)}>
        {column.cell(row)}
      </th>
    )
  return (
    <td class={classOf(column)} data-label={column.title}>
      {column.cell(row)}
    </td>
  )
}

/** Buttons and boxes say themselves what they are. */
function isTitled<Row>({ kind }: Column<Row>): boolean {
  return kind !== 'actions' && kind !== 'choice'
}

function classOf<Row>({ kind, isSteady = false, isExtra = false }: Column<Row>) {
  const names = [kind, isSteady && 'steady', isExtra && 'extra'].filter(Boolean)
  return names.length === 0 ? undefined : names.join(' ')
}
