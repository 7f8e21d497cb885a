import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { AUDIT_CHECKS, FINDING_KINDS, FINDINGS_PER_CODE_MAX, openLedger } from '#audit/findings.ts'

const where = { where: 'leaf 1', message: 'm' }
const outcomeOf = (ledger: ReturnType<typeof openLedger>, name: string) =>
  ledger.checks().find((check) => check.name === name)

describe('openLedger', () => {
  it('a ledger has every check, and passes no check that nothing is known about', () => {
    const checks = openLedger('0x').checks()
    expect(checks.map(({ name }) => name)).toEqual(Object.keys(AUDIT_CHECKS))
    expect(new Set(checks.map(({ outcome }) => outcome))).toEqual(new Set(['not checked']))
  })

  it('a ledger passes what was checked, unless a part was not checked, or something was found', () => {
    const ledger = openLedger('0x')
    ledger.pass('leaves', 5)
    expect(outcomeOf(ledger, 'leaves')).toMatchObject({ outcome: 'passed', detail: '5 in order' })
    ledger.skip('leaves', 'a reason')
    expect(outcomeOf(ledger, 'leaves')).toMatchObject({
      outcome: 'not checked',
      detail: 'a reason; 5 in order',
    })
    ledger.find('leaf_missing', where)
    expect(outcomeOf(ledger, 'leaves')).toMatchObject({ outcome: 'failed' })
  })

  it('a ledger counts more findings of a code than it keeps', () => {
    const ledger = openLedger('0x')
    for (let at = 0; at < FINDINGS_PER_CODE_MAX + 5; at++)
      ledger.find('leaf_changed', { where: `leaf ${at}`, message: '' })
    expect(ledger.findings()).toHaveLength(FINDINGS_PER_CODE_MAX)
    expect(outcomeOf(ledger, 'leaves')?.detail).toContain(
      `leaf_changed × ${FINDINGS_PER_CODE_MAX + 5}`,
    )
  })

  it('a ledger goes on from earlier findings, which a finding of the same place replaces', () => {
    const earlier = {
      ...where,
      code: 'leaf_changed',
      severity: 'contradiction',
      notary: '0x',
      isEarlier: true,
    } as const
    const ledger = openLedger('0x', [earlier])
    expect(outcomeOf(ledger, 'leaves')?.outcome).toBe('failed')
    ledger.find('leaf_changed', { where: 'leaf 1', message: 'again' })
    ledger.find('leaf_changed', { where: 'leaf 2', message: 'new' })
    expect(ledger.findings().map(({ message, isEarlier }) => [message, isEarlier])).toEqual([
      ['again', false],
      ['new', false],
    ])
  })
})

it('codes.md explains every code, each once, and no others', () => {
  const page = readFileSync(join(import.meta.dirname, '../../audit/codes.md'), 'utf8')
  const cells = [...page.matchAll(/^\| (`[^|]+`) +\|/gm)].map(([, cell = '']) => cell)
  const explained = cells.flatMap((cell) => cell.match(/[a-z_]+/g) ?? [])
  expect(explained.toSorted()).toEqual(Object.keys(FINDING_KINDS).toSorted())
})
