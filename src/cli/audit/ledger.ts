import {
  AUDIT_CHECKS,
  type AuditCheckName,
  FINDING_KINDS,
  FINDINGS_PER_CODE_MAX,
  type Finding,
  type FindingCode,
  GATEWAY_CHECKS,
} from './findings.ts'

/** One line of a report, of a log or of the gateway. Not checked is not passed. */
export type AuditCheck = {
  readonly name: AuditCheckName
  readonly outcome: 'passed' | 'failed' | 'not checked'
  readonly detail: string
  /** It was not checked, for no other reason than that there was nothing to check. */
  readonly isMoot: boolean
}

/**
 * What was found of one log, or of the gateway as a whole, and how much was looked at: written
 * while the audit goes on.
 */
export type Ledger = {
  /** So many things were checked in this respect, and nothing was wrong with them. */
  pass(check: AuditCheckName, count?: number): void
  /** What was found in this respect, beside how many: said once. */
  note(check: AuditCheckName, text: string): void
  /** Something was not checked. Said once for each reason, and then the check as a whole cannot pass. */
  skip(check: AuditCheckName, reason: string): void
  /** The same, because what it could be checked on was not there. */
  lack(check: AuditCheckName, reason: string): void
  /** Nothing was checked, or not in full. */
  skipAll(reason: string): void
  /** How many things were passed so far. */
  passed(check: AuditCheckName): number
  find(code: FindingCode, finding: { readonly where: string; readonly message: string }): void
  /** Up to FINDINGS_PER_CODE_MAX of each code. */
  findings(): readonly Finding[]
  checks(): readonly AuditCheck[]
}

/**
 * Gives an empty ledger of a log, or of the gateway as a whole (null), or one that goes on from the
 * findings of an earlier run.
 */
export function openLedger(notary: string | null, earlier: readonly Finding[] = []): Ledger {
  const names = notary === null ? GATEWAY_NAMES : LOG_NAMES
  const passed = new Map<AuditCheckName, number>()
  const reasons = new Map<AuditCheckName, Set<string>>()
  const lacks = new Map<AuditCheckName, string>()
  const notes = new Map<AuditCheckName, Set<string>>()
  const kept: Finding[] = [...earlier]
  const counts = new Map<FindingCode, number>()
  /** Where earlier findings stand that were not made again. */
  const unrepeated = new Map(earlier.map(({ code, where }, at) => [`${code} ${where}`, at]))
  for (const { code } of earlier) counts.set(code, (counts.get(code) ?? 0) + 1)

  function judge(name: AuditCheckName): AuditCheck {
    const count = passed.get(name) ?? 0
    const found = [...counts].filter(([code]) => FINDING_KINDS[code].check === name)
    const told = found.map(([code, number]) => `${code} × ${number}`)
    const skipped = [...(reasons.get(name) ?? [])]
    const lack = lacks.get(name)
    const open = lack === undefined ? skipped : [...skipped, lack]
    const shown = count === 0 ? [] : [`${count} in order`, ...(notes.get(name) ?? [])]
    const give = (outcome: AuditCheck['outcome'], details: readonly string[], isMoot = false) => ({
      ...{ name, outcome, isMoot },
      detail: details.join('; '),
    })
    if (found.length > 0) return give('failed', [...told, ...shown, ...open])
    if (open.length > 0) return give('not checked', [...open, ...shown], skipped.length === 0)
    return count === 0 ? give('not checked', ['there was nothing to check'], true) : give('passed', shown)
  }

  function skip(check: AuditCheckName, reason: string): void {
    reasons.set(check, (reasons.get(check) ?? new Set()).add(reason))
  }

  return {
    skip,
    lack: (check, reason) => {
      lacks.set(check, reason)
    },
    note: (check, text) => {
      notes.set(check, (notes.get(check) ?? new Set()).add(text))
    },
    skipAll: (reason) => {
      for (const check of names) skip(check, reason)
    },
    pass(check, count = 1) {
      passed.set(check, (passed.get(check) ?? 0) + count)
    },
    passed: (check) => passed.get(check) ?? 0,
    find(code, { where, message }) {
      const { severity } = FINDING_KINDS[code]
      const finding = { code, severity, notary, where, message, isEarlier: false }
      const again = unrepeated.get(`${code} ${where}`)
      if (again !== undefined) {
        kept[again] = finding
        unrepeated.delete(`${code} ${where}`)
        return
      }
      const count = (counts.get(code) ?? 0) + 1
      counts.set(code, count)
      if (count <= FINDINGS_PER_CODE_MAX) kept.push(finding)
    },
    findings: () => kept,
    checks: () => names.map(judge),
  }
}

const LOG_NAMES = Object.keys(AUDIT_CHECKS) as readonly AuditCheckName[]
const GATEWAY_NAMES = Object.keys(GATEWAY_CHECKS) as readonly AuditCheckName[]
