import './table.css'
import type { ComponentChildren } from 'preact'
import { Scrolling } from '../kit/scrolling.tsx'

export type Column<Row> = {
  /** Shown above the cells, or before the value in a card. */
  readonly title: string
  /**
   * `name`: the name of the row, and the heading of the card. `number`: aligned at the right.
   * `actions`: buttons, at the end. `choice`: a box to tick, before the name. `excerpt`: the
   * beginning of a text.
   */
  readonly kind?: 'name' | 'number' | 'actions' | 'choice' | 'excerpt'
  /** True if the column keeps its width, so that the columns beside it do not move. */
  readonly isSteady?: boolean
  /** True if the column is hidden while a panel is open beside the table. */
  readonly isExtra?: boolean
  readonly cell: (row: Row) => ComponentChildren
}

/**
 * On a narrow screen each row is a card: name and actions in full, the other values below their
 * titles. The table reserves space for the rows before they are loaded.
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
  /** Null while the rows are not loaded. */
  readonly rows: readonly Row[] | null
  readonly keyOf: (row: Row, place: number) => string | number
  /** Shown when the table has no rows. */
  readonly empty: ComponentChildren
  /** Key of the row whose details are open. */
  readonly currentKey?: string | number | null
  /** True if the table fits on a narrow screen without cards. */
  readonly isSmall?: boolean
  /** A CSS class for a table whose cards have their own layout. */
  readonly name?: string
}) {
  return (
    <Scrolling label={label} layout={`table-place ${name}`}>
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
                    <Cell key={column.title} column={column} row={row} />
                  ))}
                </tr>
              )
            })}
          </tbody>
        </table>
      )}
    </Scrolling>
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

/** Buttons and boxes have labels, so their cells need no title. */
function isTitled<Row>({ kind }: Column<Row>): boolean {
  return kind !== 'actions' && kind !== 'choice'
}

function classOf<Row>({ kind, isSteady = false, isExtra = false }: Column<Row>) {
  const names = [kind, isSteady && 'steady', isExtra && 'extra'].filter(Boolean)
  return names.length === 0 ? undefined : names.join(' ')
}
