import { expectsCode } from '#attestation/evidence/policy.ts'
import { emptyEdge } from '#attestation/merkle/edge.ts'
import { auditEvents, createAnchorAudit, refreshWaiting } from './anchors.ts'
import type { AuditTools, LogContext, LogReport } from './audit-context.ts'
import { ChainFault } from './chain.ts'
import { auditConstancy, auditResumption, createHeadJudge } from './compare-heads.ts'
import { auditBootStatement, createAttestationAudit } from './documents.ts'
import { openLedger } from './findings.ts'
import type { ServedLog } from './gateway.ts'
import { GatewayFault } from './gateway-http.ts'
import { HeadIndex, type SignedHead } from './known-heads.ts'
import {
  auditClaims,
  auditConfigurationSource,
  auditIdentity,
  auditLogContract,
  auditSameLog,
} from './log-claims.ts'
import { openLeafReader, type WalkOutcome, walkLog } from './log-walk.ts'
import { createRecordAudit, openRecordReader, type RecordAudit } from './records.ts'
import { Samples } from './samples.ts'
import type { SavedLog } from './saved-state.ts'
import { auditProofs, TreeWalk } from './tree.ts'

type AuditEvents = {
  progress(size: number): void
  /** Saves the state from which the next run can continue. */
  save(saved: SavedLog): Promise<void>
}

/**
 * Audits the log up to its current size (see README.md in this folder), from its first leaf or from
 * `saved`. Never throws because of an answer from the gateway or the chain. Throws the abort reason
 * of the signal, and the errors of `save`.
 */
export async function auditLog(
  log: ServedLog,
  tools: AuditTools,
  { saved, events }: { readonly saved: SavedLog | null; readonly events: AuditEvents },
): Promise<LogReport> {
  const ledger = openLedger(log.notary, saved?.findings)
  const run = new LogRun({ ...tools, log, ledger }, saved ?? NOTHING_SAVED, events)
  let isComplete = false
  try {
    isComplete = await run.audit()
  } catch (fault) {
    if (!(fault instanceof GatewayFault) && !(fault instanceof ChainFault)) throw fault
    ledger.find(fault.code, fault)
  } finally {
    await run.end()
  }
  if (!isComplete) ledger.skipAll('the audit of this log was not finished')
  const { startSize, endSize, headCount, matched } = run
  const { notary, size } = log
  const counts = { startSize, endSize, headCount, matched, isComplete }
  return { notary, size, ...counts, checks: ledger.checks(), findings: ledger.findings() }
}

class LogRun {
  readonly startSize: number
  headCount = 0
  private readonly events: AuditEvents
  private readonly tree: TreeWalk
  private readonly context: LogContext
  private state: SavedLog
  private walkedSize: number
  private closers: (() => Promise<void>)[] = []

  constructor(given: Omit<LogContext, 'index' | 'samples'>, saved: SavedLog, events: AuditEvents) {
    this.events = events
    this.state = saved
    this.startSize = saved.edge.size
    this.walkedSize = this.startSize
    this.tree = new TreeWalk(saved.edge)
    const index = new HeadIndex(this.startSize)
    if (saved.head !== null) index.add(saved.head)
    const end = Math.max(this.startSize, endOf(given))
    const samples = new Samples(given.random, { start: this.startSize, end })
    this.context = { ...given, index, samples }
  }

  get endSize(): number {
    return this.walkedSize
  }

  get matched(): SignedHead | null {
    return this.state.head
  }

  /** Returns true if the audit ran to its end. */
  async audit(): Promise<boolean> {
    const saved = this.state
    auditIdentity(this.context)
    await auditBootStatement(this.context)
    const chain = await auditLogContract(this.context)
    const context: LogContext = { ...this.context, chain }
    if (saved.head !== null && !(await auditResumption(context, saved.head))) return false
    const anchors = createAnchorAudit(context)
    await anchors.check(await refreshWaiting(saved.waiting, context))
    const records = this.openRecords()
    const heads = createHeadJudge(context, saved.head)
    const outcome = await walkLog({
      ...context,
      heads,
      anchors,
      records,
      tree: this.tree,
      leaves: this.closing(openLeafReader(context, this.startSize)),
      attestations: createAttestationAudit(context),
      onStep: async ({ size, isWhole }) => {
        this.walkedSize = size
        this.events.progress(size)
        const newest = heads.newest()
        if (!isWhole || newest === null) return
        const bracket = records?.audit.timeline.bracket() ?? NOTHING_SAVED.bracket
        const edge = this.tree.matchedEdge
        this.state = { ...this.state, edge, head: newest, waiting: anchors.waiting(), bracket }
        await this.save()
      },
    })
    this.headCount = outcome.headCount
    this.finishRecords(records?.audit ?? null)
    auditConfigurationSource(context.ledger)
    await this.close(outcome, heads.newest(), context)
    return true
  }

  async end(): Promise<void> {
    for (const close of this.closers) await close()
    await this.save()
  }

  private async close(
    outcome: WalkOutcome,
    newest: SignedHead | null,
    context: LogContext,
  ): Promise<void> {
    const { log, ledger, scope, chain } = context
    const end = endOf(context)
    if (this.walkedSize < end)
      ledger.find('head_missing', {
        where: 'heads',
        message:
          `the log has ${log.size} leaves, but the last head that is served and signed has ` +
          `${this.walkedSize}`,
      })
    if (scope.to !== null) ledger.skip('growth', `heads of over ${end} leaves were left out (--to)`)
    if (this.matched !== null) await auditProofs(this.matched, context)
    this.auditClaims(await auditConstancy(context, newest, outcome.confirmedSize), outcome)
    if (chain === null) return
    if (scope.fromBlock > 0)
      ledger.skip('heads on chain', `blocks before ${scope.fromBlock} were left out (--from-block)`)
    this.state = {
      ...this.state,
      ...(await auditEvents({ ...context, chain }, newest, this.state)),
    }
  }

  /** Checks the gateway's descriptions of the log, from the start of the audit and from its end. */
  private auditClaims(later: ServedLog, { servedSize, attestedSize, isWhole }: WalkOutcome): void {
    const { log, ledger, recover } = this.context
    const tree = isWhole ? { size: this.tree.size, root: this.tree.root() } : null
    auditClaims(log, { ledger, where: 'log', servedSize: 0, tree, recover })
    // auditConstancy has already reported a log that is smaller now.
    if (later.size >= log.size)
      auditClaims(later, { ledger, where: 'log, at the end', servedSize, tree, recover })
    auditSameLog(log, later, ledger)
    if (attestedSize > later.size)
      ledger.skip(
        'time attestations',
        `the enclave attested ${attestedSize} leaves, but only ${later.size} are served: the ` +
          'others were never committed, or are withheld',
      )
  }

  /** The reader is closed when the audit ends. */
  private closing<Reader extends { close(): Promise<void> }>(reader: Reader): Reader {
    this.closers.push(() => reader.close())
    return reader
  }

  private openRecords() {
    const { ledger, scope } = this.context
    if (!expectsCode(scope.policy))
      ledger.skip(
        'measurements',
        scope.acceptsAnyCode ? 'any code was accepted' : 'no expected measurements were given',
      )
    if (scope.recordsLeftOut !== null) {
      for (const check of ['records', 'requests in one log', 'attestation documents'] as const)
        ledger.skip(check, scope.recordsLeftOut)
      return null
    }
    const start = Math.max(this.startSize, scope.from)
    return {
      reader: this.closing(openRecordReader(this.context, start)),
      audit: createRecordAudit(this.context, this.state.bracket),
    }
  }

  private finishRecords(audit: RecordAudit | null): void {
    if (audit === null) return
    audit.finish()
    const newest = audit.newestDocument()
    const { attestationDigest, size } = this.context.log
    if (newest?.index !== size - 1 || newest.digest === attestationDigest) return
    this.context.ledger.find('attestation_digest_mismatch', {
      where: 'log',
      message:
        `the log names the document ${attestationDigest ?? 'none'}, but its newest record has ` +
        `${newest.digest}`,
    })
  }

  /** Faults are not saved: the next run asks the gateway or the chain again. */
  private async save(): Promise<void> {
    const findings = this.context.ledger.findings().filter(({ severity }) => severity !== 'fault')
    await this.events.save({ ...this.state, findings })
  }
}

/** The log's size when the gateway listed the log, or `--to` if this is smaller. */
function endOf({ log, scope }: Pick<LogContext, 'log' | 'scope'>): number {
  return Math.min(log.size, scope.to ?? log.size)
}

const NOTHING_SAVED: SavedLog = {
  edge: emptyEdge,
  head: null,
  waiting: [],
  eventBlock: null,
  bracket: { newestMs: null, notBeforeMs: null },
  findings: [],
}
