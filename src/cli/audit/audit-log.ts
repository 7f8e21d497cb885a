import { expectsCode } from '../../../attestation/evidence/policy.ts'
import { emptyEdge } from '../../../attestation/merkle/edge.ts'
import type { AttestationVerifier } from '../../../attestation/nitro/verify-attestation.ts'
import { auditEvents, createAnchorAudit, REORGANISED_BLOCKS_MAX, refreshWaiting } from './anchors.ts'
import type { AuditScope } from './audit-scope.ts'
import { ChainFault, type ChainSource } from './chain.ts'
import {
  auditConstancy,
  auditResumption,
  createHeadJudge,
  HeadIndex,
  type SignedHead,
} from './compare-heads.ts'
import {
  auditBootStatement,
  createAttestationAudit,
  createDocumentJudge,
  type NamedHeads,
} from './documents.ts'
import { type AuditCheck, type Finding, type Ledger, openLedger } from './findings.ts'
import type { Gateway, ServedLog } from './gateway.ts'
import { GatewayFault } from './gateway-http.ts'
import {
  auditClaims,
  auditConfigurationSource,
  auditContract,
  auditIdentity,
  auditSameLog,
} from './log-claims.ts'
import { openLeafReader, type WalkOutcome, walkLog } from './log-walk.ts'
import { createRecordAudit, openRecordReader, type RecordAudit } from './records.ts'
import type { Payers } from './relayers.ts'
import type { SavedLog } from './saved-state.ts'
import { auditProofs, type Random, Samples, TreeWalk } from './tree.ts'

/** What became of the audit of one log. */
export type LogReport = {
  readonly notary: string
  /** Leaves that the log had when the audit began. */
  readonly size: number
  /** Leaves that this run went on from, and those that it reached. */
  readonly startSize: number
  readonly endSize: number
  readonly headCount: number
  /** The newest head that the leaves were compared with. */
  readonly matched: SignedHead | null
  /** It came to its end; otherwise nothing counts as passed. */
  readonly isComplete: boolean
  readonly checks: readonly AuditCheck[]
  readonly findings: readonly Finding[]
}

/** What logs are audited with. */
export type AuditTools = {
  readonly gateway: Gateway
  readonly chain: ChainSource | null
  readonly scope: AuditScope
  /** First block whose events are read. */
  readonly fromBlock: number
  readonly verifier: AttestationVerifier
  readonly payers: Payers
  /** Heads that enclaves say they were shown. */
  readonly named: NamedHeads
  readonly random: Random
  /** Unix milliseconds. */
  readonly nowMs: number
}

/** What happens on the way. */
export type AuditEvents = {
  progress(size: number): void
  /** Where the next run could go on from. */
  save(saved: SavedLog): Promise<void>
}

/**
 * Audits one log from its first leaf, or from where `saved` stands, to the size it has now (README.md of this folder).
 * Never throws for what the gateway or the chain says; throws what the signal was aborted with, and what `save` throws.
 */
export async function auditLog(
  log: ServedLog,
  tools: AuditTools,
  { saved, events }: { readonly saved: SavedLog | null; readonly events: AuditEvents },
): Promise<LogReport> {
  const ledger = openLedger(log.notary, saved?.findings)
  const run = new LogRun(log, { tools, ledger, saved, events })
  let isComplete = false
  try {
    isComplete = await run.audit()
  } catch (fault) {
    if (!(fault instanceof GatewayFault) && !(fault instanceof ChainFault)) throw fault
    const isChain = fault instanceof ChainFault
    ledger.find(isChain ? 'chain_unreachable' : fault.code, {
      where: isChain ? 'chain' : fault.where,
      message: fault.message,
    })
  } finally {
    await run.end()
  }
  if (!isComplete) ledger.skipAll('the audit of this log did not come to its end')
  const { startSize, endSize, headCount, matched } = run
  const { notary, size } = log
  const counts = { startSize, endSize, headCount, matched, isComplete }
  return { notary, size, ...counts, checks: ledger.checks(), findings: ledger.findings() }
}

/** One audit of one log. */
class LogRun {
  readonly startSize: number
  headCount = 0
  private readonly log: ServedLog
  private readonly tools: AuditTools
  private readonly ledger: Ledger
  private readonly events: AuditEvents
  private readonly tree: TreeWalk
  private readonly index: HeadIndex
  private readonly samples: Samples
  /** What would be saved now. */
  private state: SavedLog
  private walkedSize: number
  private closers: (() => Promise<void>)[] = []

  constructor(
    log: ServedLog,
    given: {
      readonly tools: AuditTools
      readonly ledger: Ledger
      readonly saved: SavedLog | null
      readonly events: AuditEvents
    },
  ) {
    const { tools, saved } = given
    this.log = log
    this.tools = tools
    this.ledger = given.ledger
    this.events = given.events
    this.state = saved ?? NOTHING_SAVED
    this.startSize = this.state.edge.size
    this.walkedSize = this.startSize
    this.tree = new TreeWalk(this.state.edge)
    this.index = new HeadIndex(this.startSize)
    if (this.state.head !== null) this.index.add(this.state.head)
    const end = Math.min(log.size, tools.scope.to ?? log.size)
    this.samples = new Samples(tools.random, { start: this.startSize, end: Math.max(this.startSize, end) })
  }

  get endSize(): number {
    return this.walkedSize
  }

  get matched(): SignedHead | null {
    return this.state.head
  }

  /** Whether it came to its end. */
  async audit(): Promise<boolean> {
    const { log, ledger, tools } = this
    const saved = this.state
    auditIdentity(log, { ledger, scope: tools.scope })
    await auditBootStatement(log, { ...tools, ledger })
    const chain = await auditContract(log, { ledger, chain: tools.chain })
    const given = { gateway: tools.gateway, ledger }
    if (saved.head !== null && !(await auditResumption(log, saved.head, given))) return false
    const anchors = createAnchorAudit(log, { ...tools, ledger, chain })
    await anchors.check(await refreshWaiting(saved.waiting, { gateway: tools.gateway, notary: log.notary }))
    const records = this.openRecords()
    const heads = createHeadJudge(log, { ledger, index: this.index, newest: saved.head })
    const outcome = await walkLog({
      ...tools,
      log,
      ledger,
      heads,
      anchors,
      records,
      tree: this.tree,
      samples: this.samples,
      leaves: this.openLeaves(),
      attestations: createAttestationAudit(log, { ...tools, ledger, chain }),
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
    auditConfigurationSource(ledger)
    await this.close(outcome, { chain, newest: heads.newest() })
    return true
  }

  /** Ends what is open, and saves what was found. */
  async end(): Promise<void> {
    for (const close of this.closers) await close()
    await this.save()
  }

  /** What takes the whole walk to be known. */
  private async close(
    outcome: WalkOutcome,
    { chain, newest }: { readonly chain: ChainSource | null; readonly newest: SignedHead | null },
  ): Promise<void> {
    const { log, ledger, tools, samples, index } = this
    const { confirmedSize } = outcome
    const end = Math.min(log.size, tools.scope.to ?? log.size)
    if (this.walkedSize < end)
      ledger.find('head_missing', {
        where: 'heads',
        message: `the log has ${log.size} leaves, and the last head that is served and signed has ${this.walkedSize}`,
      })
    if (tools.scope.to !== null) ledger.skip('growth', `heads of over ${end} leaves were left out (--to)`)
    const matched = this.state.head
    if (matched !== null) await auditProofs(matched, { ...tools, notary: log.notary, ledger, samples })
    const given = { ...tools, ledger, index, samples, newest, confirmedSize }
    this.auditClaims(await auditConstancy(log, given), outcome)
    if (chain === null) return
    const fromBlock = Math.max(tools.fromBlock, (this.state.eventBlock ?? 0) - REORGANISED_BLOCKS_MAX)
    if (tools.fromBlock > 0)
      ledger.skip('heads on chain', `blocks before ${tools.fromBlock} were left out (--from-block)`)
    const eventBlock = await auditEvents(log, { ...tools, chain, ledger, index, newest, fromBlock })
    this.state = { ...this.state, eventBlock }
  }

  /** What the gateway claimed of the log when the audit began, and what it claims at the end (`later`). */
  private auditClaims(later: ServedLog, { servedSize, attestedSize, isWhole }: WalkOutcome): void {
    const { log, ledger } = this
    const tree = isWhole ? { size: this.tree.size, root: this.tree.root() } : null
    auditClaims(log, { ledger, where: 'log', servedSize: 0, tree })
    // That it shrank is told already.
    if (later.size >= log.size) auditClaims(later, { ledger, where: 'log, at the end', servedSize, tree })
    auditSameLog(log, later, ledger)
    if (attestedSize > later.size)
      ledger.skip(
        'time attestations',
        `the enclave attested ${attestedSize} leaves, of which ${later.size} are served: the others were never committed, or are kept back`,
      )
  }

  private openLeaves() {
    const { log, tools, startSize } = this
    const reader = openLeafReader(tools.gateway, { notary: log.notary, start: startSize, end: log.size })
    this.closers.push(() => reader.close())
    return reader
  }

  private openRecords() {
    const { log, tools, ledger, startSize } = this
    const { scope, gateway, verifier } = tools
    if (!expectsCode(scope.policy))
      ledger.skip(
        'measurements',
        scope.acceptsAnyCode ? 'any code was accepted' : 'no expected measurements were given',
      )
    if (scope.recordsLeftOut !== null) {
      for (const check of ['records', 'attestation documents'] as const)
        ledger.skip(check, scope.recordsLeftOut)
      return null
    }
    const start = Math.max(startSize, scope.from)
    const reader = openRecordReader(gateway, { notary: log.notary, start, end: log.size })
    this.closers.push(() => reader.close())
    const documents = createDocumentJudge(log, { scope, verifier })
    const { bracket } = this.state
    return { reader, audit: createRecordAudit(log, { ledger, scope, documents, bracket }) }
  }

  private finishRecords(audit: RecordAudit | null): void {
    if (audit === null) return
    audit.finish()
    const newest = audit.newestDocument()
    const { attestationDigest, size } = this.log
    if (newest?.index !== size - 1 || newest.digest === attestationDigest) return
    this.ledger.find('attestation_digest_mismatch', {
      where: 'log',
      message: `the log names the document ${attestationDigest ?? 'none'}, its newest record carries ${newest.digest}`,
    })
  }

  /** Faults are of this run: the next one asks again. */
  private async save(): Promise<void> {
    const findings = this.ledger.findings().filter(({ severity }) => severity !== 'fault')
    await this.events.save({ ...this.state, findings })
  }
}

const NOTHING_SAVED: SavedLog = {
  edge: emptyEdge,
  head: null,
  waiting: [],
  eventBlock: null,
  bracket: { newestMs: null, notBeforeMs: null },
  findings: [],
}
