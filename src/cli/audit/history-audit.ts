import { encodeHex, equalBytes } from '../../../attestation/bytes.ts'
import { verifyConsistency } from '../../../attestation/merkle/verify.ts'
import type { ServedHead, ServedLog } from './answers.ts'
import type { Gateway } from './gateway.ts'
import type { HeadIndex } from './head-index.ts'
import type { Ledger } from './ledger.ts'
import { reasonAgainst } from './proof-audit.ts'
import type { Samples } from './samples.ts'
import { describeHead, isSigned, reportEquivocation, type SignedHead } from './signed-heads.ts'

type Given = { readonly gateway: Gateway; readonly ledger: Ledger }

/**
 * Whether the log still is the one of the last audit, whose newest head is `saved`: the gateway serves that head, has no
 * fewer leaves, and proves that its newest head goes on from there. Throws GatewayFault.
 */
export async function auditResumption(
  log: ServedLog,
  saved: SignedHead,
  { gateway, ledger }: Given,
): Promise<boolean> {
  const report = (message: string): false => {
    const told = `${message}; the last audit found ${describeHead(saved)}`
    ledger.find('history_rewritten', { where: `head ${saved.size}`, message: told })
    return false
  }
  if (log.size < saved.size) return report(`the log has ${log.size} leaves`)
  const served = await gateway.fetchHead(log.notary, saved.size)
  if (served === null) return report('the gateway serves no head of that size')
  if (!equalBytes(served.root, saved.root)) return report(`the gateway serves ${describeHead(served)}`)
  const { head } = log
  if (head !== null && head.size > saved.size && isSigned(head, log)) {
    const reason = await reasonAgainst(async () => {
      const path = await gateway.fetchConsistency(log.notary, saved.size, head.size)
      verifyConsistency({ first: saved, second: head, path })
    })
    if (reason !== null)
      return report(`the newest head, ${describeHead(head)}, does not go on from there (${reason})`)
  }
  ledger.pass('one history')
  return true
}

/**
 * Asks again, after the walk, for what was served before: the log, and heads drawn at random. What is signed must be the
 * same for every question. `newest`: the last head of the walk, null when there is none. Gives what the log is now. Throws GatewayFault.
 */
export async function auditConstancy(
  log: ServedLog,
  given: Given & {
    readonly index: HeadIndex
    readonly samples: Samples
    readonly newest: SignedHead | null
    /** The largest head that was served as confirmed on the chain: no reorganisation takes that back. */
    readonly confirmedSize: number
  },
): Promise<ServedLog> {
  const { gateway, ledger, index, samples, confirmedSize } = given
  if (log.head !== null) compareHead(log.head, log, { ledger, index, where: 'newest head of the log' })
  for (const { size } of samples.heads()) {
    const served = await gateway.fetchHead(log.notary, size)
    if (served !== null) compareHead(served, log, { ledger, index, where: `head ${size}, asked again` })
    else
      ledger.find('head_missing', {
        where: `head ${size}`,
        message: `the head of size ${size} was served, and is not when it is asked for again`,
      })
  }
  const later = await gateway.fetchLog(log.notary)
  if (later.size < log.size)
    ledger.find('history_rewritten', {
      where: 'log',
      message: `the log had ${log.size} leaves when the audit began, and has ${later.size} at its end`,
    })
  if ((later.head?.size ?? 0) < confirmedSize)
    ledger.find('head_reused', {
      where: 'newest head of the log',
      message: `the log names an anchored head of size ${later.head?.size ?? 0} as its newest, and serves one of ${confirmedSize}`,
    })
  if (later.head !== null) await auditNewest(later.head, log, given)
  return later
}

/** The head that is newest now may be one of the walk, or go on from it. */
async function auditNewest(
  head: ServedHead,
  log: ServedLog,
  given: Given & { readonly index: HeadIndex; readonly newest: SignedHead | null },
): Promise<void> {
  const { gateway, ledger, newest } = given
  const where = 'newest head of the log, at the end'
  if (newest === null) {
    if (!isSigned(head, log)) ledger.find('head_signature_invalid', { where, message: describeHead(head) })
    return
  }
  if (head.size <= newest.size) return compareHead(head, log, { ...given, where })
  const reason = await reasonAgainst(async () => {
    const path = await gateway.fetchConsistency(log.notary, newest.size, head.size)
    verifyConsistency({ first: newest, second: head, path })
  })
  if (reason === null) ledger.pass('one history')
  else if (isSigned(head, log)) reportEquivocation(ledger, where, [describeHead(head), describeHead(newest)])
  else ledger.find('head_signature_invalid', { where, message: describeHead(head) })
}

function compareHead(
  head: ServedHead,
  log: ServedLog,
  { ledger, index, where }: { readonly ledger: Ledger; readonly index: HeadIndex; readonly where: string },
): void {
  const known = index.compare(head)
  if (known === 'same') ledger.pass('one history')
  else if (!isSigned(head, log)) ledger.find('head_signature_invalid', { where, message: describeHead(head) })
  else if (known === 'other') {
    const root = index.rootAt(head.size)
    const before = root === null ? 'unknown' : encodeHex(root)
    reportEquivocation(ledger, where, [describeHead(head), `root ${before}, signed and served before`])
  } else if (index.covers(head.size))
    ledger.find('head_missing', { where, message: `the list of heads lacks ${describeHead(head)}` })
}
