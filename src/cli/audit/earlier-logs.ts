import { decodeHex, equalBytes } from '../../../attestation/bytes.ts'
import type { ServedLog } from './answers.ts'
import type { LogReport } from './audit-log.ts'
import type { NamedHead, NamedHeads } from './boot-audit.ts'
import { isConsistent } from './event-audit.ts'
import type { Gateway } from './gateway.ts'
import { GatewayFault } from './gateway-fault.ts'
import type { Ledger } from './ledger.ts'

/**
 * Compares the heads that enclaves were shown when they began with the logs that are served now.
 * Each head must be of a listed log that grew from it. `isOneLog`: only one log was asked for.
 * Never throws for what the gateway says.
 */
export async function auditEarlierLogs(
  named: NamedHeads,
  given: {
    readonly found: readonly ServedLog[]
    readonly reports: readonly LogReport[]
    /** Of earlier runs too: those that are missing now are told already. */
    readonly listed: ReadonlySet<string>
    readonly isOneLog: boolean
    readonly gateway: Pick<Gateway, 'fetchConsistency'>
    readonly ledger: Ledger
  },
): Promise<void> {
  const { found, reports, listed, isOneLog, ledger } = given
  if (isOneLog) return ledger.skip('earlier logs', 'one log alone was asked for (--notary)')
  if (named.isCut()) ledger.skip('earlier logs', 'more heads were named than are looked at')
  const logs = new Map(found.map((log) => [log.notary, log]))
  const walked = new Map(reports.map((report) => [report.notary, report.matched]))
  for (const head of named.list()) {
    const log = logs.get(head.notary)
    if (log === undefined && !listed.has(head.notary)) {
      ledger.find('earlier_log_hidden', {
        where: `boot statement of ${head.by}`,
        message: `the gateway does not list the log of ${head.notary}, of which it showed ${describe(head)} to an enclave that began`,
      })
    }
    if (log === undefined) continue
    const reason = await reasonAgainst(head, { log, matched: walked.get(head.notary) ?? null, ...given })
    if (reason === null) ledger.pass('earlier logs')
    else if (reason !== 'unknown')
      ledger.find('earlier_log_mismatch', {
        where: `boot statement of ${head.by}`,
        message: `of log ${head.notary} an enclave was shown ${describe(head)}, but ${reason}`,
      })
  }
}

/** Null when the log goes on from the head. */
async function reasonAgainst(
  head: NamedHead,
  {
    log,
    matched,
    gateway,
    ledger,
  }: {
    readonly log: ServedLog
    readonly matched: LogReport['matched']
    readonly gateway: Pick<Gateway, 'fetchConsistency'>
    readonly ledger: Ledger
  },
): Promise<string | 'unknown' | null> {
  const { notary, size } = head
  if (size > log.size) return `it is served with ${log.size} leaves`
  if (matched === null) {
    ledger.skip('earlier logs', 'some were not walked, so that there is no tree to compare with')
    return 'unknown'
  }
  const other = `it is served with another history, of the root of its ${matched.size} leaves`
  const root = decodeHex(head.root)
  if (size === matched.size) return equalBytes(root, matched.root) ? null : other
  try {
    return (await isConsistent({ size, root }, matched, { gateway, notary })) ? null : other
  } catch (fault) {
    if (!(fault instanceof GatewayFault)) throw fault
    ledger.find(fault.code, { where: fault.where, message: fault.message })
    return 'unknown'
  }
}

function describe({ size, root, signature }: NamedHead): string {
  return `the head of size ${size}, root ${root}, signature ${signature}`
}
