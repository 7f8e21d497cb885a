import {
  AUDIT_CHECKS,
  type AuditCheckName,
  FINDING_KINDS,
  FINDINGS_PER_CODE_MAX,
  type Finding,
  type FindingCode,
} from './findings.ts'

/** One line of a log's report. Not checked is not passed. */
export type AuditCheck = {
  readonly name: AuditCheckName
  readonly outcome: 'passed' | 'failed' | 'not checked'
  readonly detail: string
}

/** What was found of one log, and how much was looked at: written while the audit goes on. */
export type Ledger = {
  /** So many things were checked in this respect, and nothing was wrong with them. */
  pass(check: AuditCheckName, count?: number): void
  /** Something was not checked. Said once for each reason, and then the check as a whole cannot pass. */
  skip(check: AuditCheckName, reason: string): void
  find(code: FindingCode, finding: { readonly where: string; readonly message: string }): void
  findings(): readonly Finding[]
  /** How many there are of each code, with those beyond FINDINGS_PER_CODE_MAX. */
  counts(): ReadonlyMap<FindingCode, number>
  checks(): readonly AuditCheck[]
}

/** Gives an empty ledger of a log, or one that goes on from the findings of an earlier run. */
export function openLedger(notary: string | null, earlier: readonly Finding[] = []): Ledger {
  const passed = new Map<AuditCheckName, number>()
  const reasons = new Map<AuditCheckName, Set<string>>()
  const kept: Finding[] = [...earlier]
  const counts = new Map<FindingCode, number>()
  for (const { code } of earlier) counts.set(code, (counts.get(code) ?? 0) + 1)

  function judge(name: AuditCheckName): AuditCheck {
    const count = passed.get(name) ?? 0
    const found = [...counts].filter(([code]) => FINDING_KINDS[code].check === name)
    const told = found.map(([code, number]) => `${code} × ${number}`)
    const open = [...(reasons.get(name) ?? [])]
    const shown = count === 0 ? [] : [`${count} in order`]
    if (found.length > 0) return { name, outcome: 'failed', detail: [...told, ...shown, ...open].join('; ') }
    if (open.length > 0) return { name, outcome: 'not checked', detail: [...open, ...shown].join('; ') }
    return count === 0
      ? { name, outcome: 'not checked', detail: 'there was nothing to check' }
      : { name, outcome: 'passed', detail: shown.join() }
  }

  return {
    pass(check, count = 1) {
      passed.set(check, (passed.get(check) ?? 0) + count)
    },
    skip(check, reason) {
      reasons.set(check, (reasons.get(check) ?? new Set()).add(reason))
    },
    find(code, { where, message }) {
      const again = kept.findIndex(
        (finding) => finding.isEarlier && finding.code === code && finding.where === where,
      )
      if (again >= 0) {
        kept[again] = {
          code,
          severity: FINDING_KINDS[code].severity,
          notary,
          where,
          message,
          isEarlier: false,
        }
        return
      }
      const count = (counts.get(code) ?? 0) + 1
      counts.set(code, count)
      const { severity } = FINDING_KINDS[code]
      if (count <= FINDINGS_PER_CODE_MAX)
        kept.push({ code, severity, notary, where, message, isEarlier: false })
    },
    findings: () => kept,
    counts: () => counts,
    checks: () => (Object.keys(AUDIT_CHECKS) as readonly AuditCheckName[]).map(judge),
  }
}
