import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { expect, it } from 'vitest'
import { FAULTS } from '../faults/faults.ts'

it('deploy/FAULTS.md has a row for every fault that can be measured, in their order, and no other row', () => {
  const text = readFileSync(join(import.meta.dirname, '../../deploy/FAULTS.md'), 'utf8')
  const rows = text
    .split('\n')
    .filter((line) => line.startsWith('| '))
    .slice(2)
  const named = rows.map((row) => row.split(' | ')[0]?.slice('| '.length))
  expect(named).toEqual(FAULTS.map(({ part, name }) => `${part} ${name}`))
})
