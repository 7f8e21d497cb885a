/** The checks of a log, in the order of the report. */
export const AUDIT_CHECKS = {
  'boot configuration':
    'the key, chain and contract of the log are those of its boot configuration, and that is expected',
  'boot statement':
    'the enclave signed which heads of other logs it was shown before its first leaf',
  'head signatures': 'the notary signed every head, for that chain and contract',
  growth: 'every head has more leaves than the one before, up to the size that the log claims',
  leaves: 'the leaves, without a gap, hash to the root of every head',
  'one history': 'no two heads contradict each other, now and since the last audit',
  proofs: 'proofs that the gateway serves lead from our leaves to its heads',
  'anchors on chain':
    'the transaction of every head is in the chain, succeeded, and brought exactly that head',
  'heads on chain': 'every head of the notary in the contract is one that the gateway serves',
  'time attestations': 'the enclave attested the tree at these sizes, after those blocks',
  'blocks of attestations': 'the chain has those blocks, and they are older than the documents',
  records: 'every record is complete, and matches its leaf',
  'requests in one log': 'no request has a record in another log too, unless it has no nonce',
  'attestation documents': "records' documents are genuine, of this key, and were valid then",
  measurements: 'every document has the expected measurements',
} as const satisfies Readonly<Record<string, string>>

/** The checks of the gateway as a whole, in addition to the checks of each log. */
const GATEWAY_CHECKS = {
  'logs in the contract':
    'no relayer of this gateway paid for a log that the gateway does not list',
  'earlier logs':
    'the logs that enclaves were shown when they began are listed, and went on from there',
  'transactions of relayers': 'every transaction of those relayers has a known purpose',
} as const satisfies Readonly<Record<string, string>>

export type AuditCheckName = keyof typeof AUDIT_CHECKS | keyof typeof GATEWAY_CHECKS

/**
 * `contradiction`: two statements cannot both be true, and one of them is signed or on the chain.
 * `missing`: required data is missing. `repetition`: a call was made more than once. `fault`: a
 * wrong answer from the gateway or the chain stopped the audit.
 */
type Severity = 'contradiction' | 'missing' | 'repetition' | 'fault'

type FindingKind = { readonly severity: Severity; readonly check: AuditCheckName | null }

const contradicts = (check: AuditCheckName): FindingKind => ({ severity: 'contradiction', check })
const misses = (check: AuditCheckName): FindingKind => ({ severity: 'missing', check })
const FAULT: FindingKind = { severity: 'fault', check: null }
const NOTHING_TO_AUDIT: FindingKind = { severity: 'missing', check: null }

/** The codes are stable. codes.md explains them. */
export const FINDING_KINDS = {
  log_identity_invalid: contradicts('boot configuration'),
  configuration_mismatch: contradicts('boot configuration'),
  configuration_unexpected: contradicts('boot configuration'),
  boot_statement_invalid: contradicts('boot statement'),
  head_signature_invalid: contradicts('head signatures'),
  sizes_not_growing: contradicts('growth'),
  head_reused: contradicts('growth'),
  head_missing: misses('growth'),
  size_understated: contradicts('growth'),
  leaf_missing: misses('leaves'),
  leaf_changed: contradicts('leaves'),
  head_root_mismatch: contradicts('leaves'),
  equivocation: contradicts('one history'),
  history_rewritten: contradicts('one history'),
  log_missing: misses('one history'),
  inclusion_proof_invalid: contradicts('proofs'),
  consistency_proof_invalid: contradicts('proofs'),
  anchor_missing: misses('anchors on chain'),
  anchor_overdue: misses('anchors on chain'),
  anchor_mismatch: contradicts('anchors on chain'),
  anchor_reverted: contradicts('anchors on chain'),
  contract_unknown: contradicts('anchors on chain'),
  wrong_chain: contradicts('anchors on chain'),
  hidden_anchor: contradicts('heads on chain'),
  hidden_log: contradicts('logs in the contract'),
  earlier_log_hidden: contradicts('earlier logs'),
  earlier_log_mismatch: contradicts('earlier logs'),
  relayer_transaction: misses('transactions of relayers'),
  head_attestation_invalid: contradicts('time attestations'),
  head_attestation_mismatch: contradicts('time attestations'),
  head_attestation_order: contradicts('time attestations'),
  head_attestation_block: contradicts('blocks of attestations'),
  record_missing: misses('records'),
  record_invalid: contradicts('records'),
  record_mismatch: contradicts('records'),
  record_head_unserved: contradicts('records'),
  record_anchor_mismatch: contradicts('records'),
  record_time: contradicts('records'),
  request_in_two_logs: { severity: 'repetition', check: 'requests in one log' },
  attestation_swapped: contradicts('attestation documents'),
  attestation_invalid: contradicts('attestation documents'),
  attestation_time: contradicts('attestation documents'),
  attestation_digest_mismatch: contradicts('attestation documents'),
  measurements_unexpected: contradicts('measurements'),
  no_log: NOTHING_TO_AUDIT,
  revocation_list_unused: FAULT,
  gateway_unreachable: FAULT,
  answer_refused: FAULT,
  answer_invalid: FAULT,
  answer_too_large: FAULT,
  answer_too_slow: FAULT,
  redirected: FAULT,
  cursor_stuck: FAULT,
  chain_unreachable: FAULT,
} as const satisfies Readonly<Record<string, FindingKind>>

export type FindingCode = keyof typeof FINDING_KINDS

/** `where` and `message` may contain untrusted text: escape them before you print them. */
export type AuditFinding = {
  readonly code: FindingCode
  readonly severity: Severity
  /** Null for a finding about the gateway as a whole. */
  readonly notary: string | null
  readonly where: string
  readonly message: string
  /** True if this run continues an earlier run that made this finding. */
  readonly isEarlier: boolean
}

/** Maximum number of listed findings of one code. More findings are only counted. */
export const FINDINGS_PER_CODE_MAX = 100

/** "Not checked" does not mean "passed". */
export type AuditCheck = {
  readonly name: AuditCheckName
  readonly outcome: 'passed' | 'failed' | 'not checked'
  readonly detail: string
  /** True if the only reason for "not checked" is that there was nothing to check. */
  readonly isMoot: boolean
}

export type Ledger = ReturnType<typeof openLedger>

/** Opens the ledger of a log, or of the gateway (null). `earlier`: findings of an earlier run. */
export function openLedger(notary: string | null, earlier: readonly AuditFinding[] = []) {
  const names = notary === null ? GATEWAY_NAMES : LOG_NAMES
  const passed = new Map<AuditCheckName, number>()
  const reasons = new Map<AuditCheckName, Set<string>>()
  const lacks = new Map<AuditCheckName, string>()
  const remarks = new Map<AuditCheckName, Set<string>>()
  const tallies = new Map<string, number>()
  const kept: AuditFinding[] = [...earlier]
  const counts = new Map<FindingCode, number>()
  /** Positions of earlier findings that this run has not found again. */
  const unrepeated = new Map(earlier.map(({ code, where }, at) => [`${code} ${where}`, at]))
  for (const { code } of earlier) counts.set(code, (counts.get(code) ?? 0) + 1)

  function judge(name: AuditCheckName): AuditCheck {
    const count = passed.get(name) ?? 0
    const found = [...counts].filter(([code]) => FINDING_KINDS[code].check === name)
    const named = found.map(([code, number]) => `${code} × ${number}`)
    const skipped = [...(reasons.get(name) ?? [])]
    const lack = lacks.get(name)
    const open = lack === undefined ? skipped : [...skipped, lack]
    const tallied = [...tallies].flatMap(([key, number]) =>
      key.startsWith(`${name}: `) ? [`${number} ${key.slice(name.length + 2)}`] : [],
    )
    const shown = count === 0 ? [] : [`${count} in order`, ...tallied, ...(remarks.get(name) ?? [])]
    const give = (outcome: AuditCheck['outcome'], details: readonly string[], isMoot = false) => ({
      name,
      outcome,
      isMoot,
      detail: details.join('; '),
    })
    if (found.length > 0) return give('failed', [...named, ...shown, ...open])
    if (open.length > 0) return give('not checked', [...open, ...shown], skipped.length === 0)
    return count === 0
      ? give('not checked', ['there was nothing to check'], true)
      : give('passed', shown)
  }

  /**
   * Records that some data was not checked, so the check cannot pass. Each reason is reported once.
   */
  function skip(check: AuditCheckName, reason: string): void {
    reasons.set(check, (reasons.get(check) ?? new Set()).add(reason))
  }

  return {
    skip,
    /** Like `skip`, for a check whose data does not exist. */
    lack(check: AuditCheckName, reason: string): void {
      lacks.set(check, reason)
    },
    skipAll(reason: string): void {
      for (const check of names) skip(check, reason)
    },
    pass(check: AuditCheckName, count = 1): void {
      passed.set(check, (passed.get(check) ?? 0) + count)
    },
    passed: (check: AuditCheckName): number => passed.get(check) ?? 0,
    /** The report shows each remark once, next to the number of passed items. */
    remark(check: AuditCheckName, text: string): void {
      remarks.set(check, (remarks.get(check) ?? new Set()).add(text))
    },
    /** Counts passed items with the property `what`. The report shows the count. */
    tally(check: AuditCheckName, what: string): void {
      const key = `${check}: ${what}`
      tallies.set(key, (tallies.get(key) ?? 0) + 1)
    },
    find(
      code: FindingCode,
      { where, message }: { readonly where: string; readonly message: string },
    ): void {
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
    /** At most FINDINGS_PER_CODE_MAX findings of each code. */
    findings: (): readonly AuditFinding[] => kept,
    checks: (): readonly AuditCheck[] => names.map(judge),
  }
}

const LOG_NAMES = Object.keys(AUDIT_CHECKS) as readonly AuditCheckName[]
const GATEWAY_NAMES = Object.keys(GATEWAY_CHECKS) as readonly AuditCheckName[]
