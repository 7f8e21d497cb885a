import type { ComponentChildren } from 'preact'

/** A column: its title, or what it is for those who do not see the rows. */
export type Column = string | { readonly hidden: string }

/**
 * A table that scrolls by itself where it is wider than the page. Its place is there before its
 * rows are: `isLoaded` says that they came.
 */
export function Table({
  label,
  columns,
  isLoaded,
  empty,
  children,
}: {
  readonly label: string
  readonly columns: readonly Column[]
  readonly isLoaded: boolean
  /** Said in place of rows, when there are none; null where there are. */
  readonly empty: string | null
  readonly children: ComponentChildren
}) {
  return (
    // biome-ignore lint/a11y/noNoninteractiveTabindex: what scrolls is to be reached by keys.
    <section class="scroll table-place" aria-label={label} tabIndex={0}>
      {isLoaded && empty !== null && <p class="faint">{empty}</p>}
      {isLoaded && empty === null && (
        <table>
          <thead>
            <tr>
              {columns.map((column) => (
                <th key={titleOf(column)} scope="col">
                  {typeof column === 'string' ? (
                    column
                  ) : (
                    <span class="hidden-text">{column.hidden}</span>
                  )}
                </th>
              ))}
            </tr>
          </thead>
          <tbody>{children}</tbody>
        </table>
      )}
    </section>
  )
}

function titleOf(column: Column): string {
  return typeof column === 'string' ? column : column.hidden
}
