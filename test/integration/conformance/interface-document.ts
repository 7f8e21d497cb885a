import { existsSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { needShared } from '../../support/needs.ts'

const file = join(import.meta.dirname, '../../../../shared/interface.md')

/** Whether the interface's document is there; it is not part of this repository. */
export const INTERFACE = needShared(existsSync(file))

/**
 * The cells of a section's first table, row by row, without its head. Throws when there is no such
 * section.
 */
export function tableOf(heading: string): readonly (readonly string[])[] {
  const [, section] = readFileSync(file, 'utf8').split(`\n${heading}`)
  if (section === undefined) throw new TypeError(`the interface has no ${heading}`)
  const rows = section.split(/\n#{2,3} /, 1)[0]?.split('\n') ?? []
  const first = rows.findIndex((row) => row.startsWith('|'))
  const after = rows.findIndex((row, index) => index > first && !row.startsWith('|'))
  return rows.slice(first + 2, after === -1 ? undefined : after).map((row) =>
    row
      .split('|')
      .slice(1, -1)
      .map((cell) => cell.trim()),
  )
}
