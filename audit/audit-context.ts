import { createHash } from 'node:crypto'
import type { PointRecovery } from '../attestation/account.ts'
import { encodeHex } from '../attestation/bytes.ts'
import type { BundlePolicy } from '../attestation/evidence/policy.ts'
import type { AttestationVerifier } from '../attestation/nitro/verify-attestation.ts'
import type { ChainSource } from './chain.ts'
import type { AuditCheck, AuditFinding, Ledger } from './findings.ts'
import type { AuditedGateway, ServedLog } from './gateway.ts'
import type { HeadIndex, NamedHeads, SignedHead } from './known-heads.ts'
import type { Payers } from './payers.ts'
import type { RandomBelow, Samples } from './samples.ts'

/** What an auditor looks at, and what they expect to find. */
export type AuditScope = {
  /**
   * Leaves from here on, in what is looked at one by one; the tree is always built from the first.
   */
  readonly from: number
  /** Up to the first head of so many leaves; null: all. */
  readonly to: number | null
  readonly policy: BundlePolicy
  /** Any code is accepted: said, not merely left out. */
  readonly acceptsAnyCode: boolean
  readonly hasChain: boolean
  /** Why records are not looked at; null: they are. */
  readonly recordsLeftOut: string | null
  /** The key sees its own records alone, so that others may be missing. */
  readonly ownRecordsOnly: boolean
}

/** What a gateway's logs are audited with. */
export type AuditTools = {
  readonly gateway: AuditedGateway
  readonly chain: ChainSource | null
  readonly scope: AuditScope
  /** First block whose events are read. */
  readonly fromBlock: number
  readonly verifier: AttestationVerifier
  readonly recover: PointRecovery
  /** Receives the payer of each anchor that is in a block. */
  readonly payers: Payers
  /** Heads that enclaves say they were shown. */
  readonly named: NamedHeads
  readonly random: RandomBelow
  /** Unix milliseconds. */
  readonly nowMs: number
}

/** What one log is audited with. `chain`: null without a chain, or if it is not the log's. */
export type LogContext = AuditTools & {
  readonly log: ServedLog
  readonly ledger: Ledger
  /** Heads that were walked. */
  readonly index: HeadIndex
  readonly samples: Samples
}

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
  readonly findings: readonly AuditFinding[]
}

/** What the gateway as a whole is audited with, once all logs were. */
export type GatewayContext = AuditTools & {
  readonly ledger: Ledger
  readonly found: readonly ServedLog[]
  readonly reports: readonly LogReport[]
  /**
   * Notaries of the logs that the gateway lists, and of the logs that an earlier run audited: the
   * loss of such a log is already reported.
   */
  readonly listed: ReadonlySet<string>
  /** The newest block before the gateway was asked for its logs; null without a chain. */
  readonly newestBlock: number | null
  /** Only one log was asked for. */
  readonly isOneLog: boolean
}

/** What became of an audit. */
export type AuditReport = {
  readonly logs: readonly LogReport[]
  /** Checks and findings of the gateway as a whole. */
  readonly checks: readonly AuditCheck[]
  readonly findings: readonly AuditFinding[]
}

/**
 * What of a scope must stay the same when an audit goes on from where another one ended: with less,
 * there would be a part that no run looked at. SHA-256, hex.
 */
export function digestScope(scope: AuditScope): string {
  const { policy } = scope
  const text = JSON.stringify([
    scope.from,
    scope.hasChain,
    scope.recordsLeftOut === null,
    scope.ownRecordsOnly,
    scope.acceptsAnyCode,
    policy.allowDebug ?? false,
    policy.confirmationsMin ?? null,
    (policy.roots ?? []).map(encodeHex),
    (policy.configurations ?? []).map(encodeHex),
    (policy.measurements ?? []).map((set) =>
      [...set].map(([index, pcr]) => [index, encodeHex(pcr)]),
    ),
    // Left out when it is not asked for, as it was before there were releases: those states are
    // still good.
    ...(policy.releases === undefined ? [] : [policy.releases]),
  ])
  return createHash('sha256').update(text).digest('hex')
}
