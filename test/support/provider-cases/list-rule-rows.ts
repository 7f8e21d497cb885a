import { readFileSync } from 'node:fs'
import { join } from 'node:path'

const providers = join(import.meta.dirname, '../../../attestation/providers')

/** The rows of a kind's rules.md: the check, and the codes in its last column. */
export function listRuleRows(kind: string): readonly (readonly [string, readonly string[]])[] {
  const page = readFileSync(join(providers, kind, 'rules.md'), 'utf8')
  const rows = page.matchAll(/^\| ([A-Za-z][^|]*?) +\| [^|]* \| ((?:`\w+`(?:, )?)+) *\|$/gm)
  return [...rows].map(([, name = '', codes = '']) => [name, codes.match(/\w+/g) ?? []])
}
