import type { PointRecovery } from '#attestation/account.ts'
import { encodeHex, equalBytes } from '#attestation/bytes.ts'
import { FormatError, ProofError } from '#attestation/errors.ts'
import { verifyConsistency } from '#attestation/merkle/verify.ts'
import { orNull } from '#attestation/or-null.ts'
import { type LogDomain, type TreeHead, verifyTreeHead } from '#attestation/tree-head.ts'
import type { LogContext } from './audit-context.ts'
import type { Ledger } from './findings.ts'
import type { AuditedGateway, ServedHead, ServedLog } from './gateway.ts'
import type { HeadIndex, SignedHead } from './known-heads.ts'
import { reasonAgainst } from './tree.ts'

type Signer = {
  readonly log: { readonly notary: string; readonly domain: LogDomain }
  readonly recover: PointRecovery
}

export function isSigned(head: SignedHead, { log, recover }: Signer): boolean {
  const { notary, domain } = log
  const verify = () => verifyTreeHead({ domain, head, signature: head.signature, notary }, recover)
  return orNull(verify, FormatError, ProofError) !== null
}

/** Includes the signature: two signatures for one size and different roots prove a fault. */
export function describeHead({ size, root, signature }: SignedHead): string {
  return `size ${size}, root ${encodeHex(root)}, signature 0x${encodeHex(signature)}`
}

export type HeadJudge = ReturnType<typeof createHeadJudge>

/** Creates a judge for heads after `newest`. The judge adds each accepted head to the index. */
export function createHeadJudge(context: LogContext, newest: SignedHead | null) {
  const { log, ledger, index } = context
  return {
    newest: (): SignedHead | null => newest,
    /**
     * Returns false for a head without the notary's signature, and for a head that is not larger
     * than the newest.
     */
    accept(head: SignedHead, where: string): boolean {
      if (!isSigned(head, context)) {
        ledger.find('head_signature_invalid', {
          where,
          message: `expected the signature of ${log.notary} on the head of ${describeHead(head)}`,
        })
        return false
      }
      ledger.pass('head signatures')
      if (newest === null ? head.size === 0 : head.size <= newest.size) {
        refuse(head, where)
        return false
      }
      ledger.pass('growth')
      newest = { size: head.size, root: head.root, signature: head.signature }
      index.add(newest)
      return true
    },
  }

  function refuse(head: SignedHead, where: string): void {
    const known = index.compare(head)
    if (known === 'other')
      reportEquivocation(ledger, where, [describeHead(head), describeKnown(head, index)])
    else if (known === 'same')
      ledger.find('head_reused', {
        where,
        message:
          `the head of size ${head.size} was served before, and is repeated here where a larger ` +
          `one than ${newest?.size} belongs`,
      })
    else
      ledger.find('sizes_not_growing', {
        where,
        message: `expected a head of more than ${newest?.size ?? 0} leaves, got a head of ${head.size}`,
      })
  }
}

function describeKnown({ size }: TreeHead, index: HeadIndex): string {
  const root = index.rootAt(size)
  return `root ${root === null ? 'unknown' : encodeHex(root)}, signed and served before`
}

export function reportEquivocation(ledger: Ledger, where: string, heads: readonly string[]): void {
  ledger.find('equivocation', {
    where,
    message: `the notary signed two contradictory histories: ${heads.join('; against: ')}`,
  })
}

/**
 * Returns true if the gateway proves that the larger log begins with the smaller log. Throws
 * GatewayFault.
 */
export async function isConsistent(one: TreeHead, other: TreeHead, asked: Asked): Promise<boolean> {
  const [first, second] = one.size <= other.size ? [one, other] : [other, one]
  return (await reasonAgainstGrowth(first, second, asked)) === null
}

type Asked = { readonly notary: string; readonly gateway: AuditedGateway }

/**
 * Returns why the gateway's proof that `second` extends `first` is not valid, or null if it is
 * valid.
 */
async function reasonAgainstGrowth(
  first: TreeHead,
  second: TreeHead,
  { notary, gateway }: Asked,
): Promise<string | null> {
  return await reasonAgainst(async () => {
    const path = await gateway.fetchConsistency(notary, first.size, second.size)
    verifyConsistency({ first, second, path })
  })
}

/**
 * Returns true if the log still extends `saved`, the newest head of the last audit. Throws
 * GatewayFault.
 */
export async function auditResumption(context: LogContext, saved: SignedHead): Promise<boolean> {
  const { log, gateway, ledger } = context
  const report = (message: string): false => {
    const text = `${message}; the last audit found ${describeHead(saved)}`
    ledger.find('history_rewritten', { where: `head ${saved.size}`, message: text })
    return false
  }
  if (log.size < saved.size) return report(`the log has ${log.size} leaves`)
  const served = await gateway.fetchHead(log.notary, saved.size)
  if (served === null) return report('the gateway serves no head of that size')
  if (!equalBytes(served.root, saved.root))
    return report(`the gateway serves ${describeHead(served)}`)
  const { head } = log
  if (head !== null && head.size > saved.size && isSigned(head, context)) {
    const reason = await reasonAgainstGrowth(saved, head, { notary: log.notary, gateway })
    if (reason !== null)
      return report(`the newest head, ${describeHead(head)}, does not continue it (${reason})`)
  }
  ledger.pass('one history')
  return true
}

/**
 * After the walk, requests the log and random heads again: signed data must be the same in every
 * answer. Returns the current description of the log. Throws GatewayFault.
 */
export async function auditConstancy(
  context: LogContext,
  newest: SignedHead | null,
  /**
   * Size of the largest head that the gateway served as confirmed. A reorganisation of the chain
   * cannot remove this head.
   */
  confirmedSize: number,
): Promise<ServedLog> {
  const { log, gateway, ledger, samples } = context
  if (log.head !== null) compareHead(log.head, 'newest head of the log', context)
  for (const { size } of samples.heads()) {
    const served = await gateway.fetchHead(log.notary, size)
    if (served !== null) compareHead(served, `head ${size}, asked again`, context)
    else
      ledger.find('head_missing', {
        where: `head ${size}`,
        message: `the head of size ${size} was served once, and is not served again`,
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
      message:
        `the log names an anchored head of size ${later.head?.size ?? 0} as its newest, but ` +
        `serves one of size ${confirmedSize}`,
    })
  if (later.head !== null) await auditNewest(later.head, newest, context)
  return later
}

/** The newest head must be among the heads that were read, or extend the last of them. */
async function auditNewest(
  head: ServedHead,
  newest: SignedHead | null,
  context: LogContext,
): Promise<void> {
  const { log, gateway, ledger } = context
  const where = 'newest head of the log, at the end'
  if (newest === null) {
    if (!isSigned(head, context))
      ledger.find('head_signature_invalid', { where, message: describeHead(head) })
    return
  }
  if (head.size <= newest.size) return compareHead(head, where, context)
  const reason = await reasonAgainstGrowth(newest, head, { notary: log.notary, gateway })
  if (reason === null) ledger.pass('one history')
  else if (isSigned(head, context))
    reportEquivocation(ledger, where, [describeHead(head), describeHead(newest)])
  else ledger.find('head_signature_invalid', { where, message: describeHead(head) })
}

function compareHead(head: ServedHead, where: string, context: LogContext): void {
  const { ledger, index } = context
  const known = index.compare(head)
  if (known === 'same') ledger.pass('one history')
  else if (!isSigned(head, context))
    ledger.find('head_signature_invalid', { where, message: describeHead(head) })
  else if (known === 'other')
    reportEquivocation(ledger, where, [describeHead(head), describeKnown(head, index)])
  else if (index.covers(head.size))
    ledger.find('head_missing', { where, message: `the list of heads lacks ${describeHead(head)}` })
}
