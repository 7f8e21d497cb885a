import { createHash } from 'node:crypto'
import type { PointRecovery } from '#attestation/account.ts'
import { encodeHex } from '#attestation/bytes.ts'
import type { BundlePolicy } from '#attestation/evidence/policy.ts'
import type { AttestationVerifier } from '#attestation/nitro/verify-attestation.ts'
import type { ChainSource } from './chain.ts'
import type { AuditCheck, AuditFinding, Ledger } from './findings.ts'
import type { AuditedGateway, ServedLog } from './gateway.ts'
import type { HeadIndex, NamedHeads, SignedHead } from './known-heads.ts'
import type { Payers } from './payers.ts'
import type { RecordedRequests } from './recorded-requests.ts'
import type { RandomBelow, Samples } from './samples.ts'

export type AuditScope = {
  /** The first leaf whose record is checked. The tree is always built from the log's first leaf. */
  readonly from: number
  /** The audit ends at the first head with at least this many leaves. Null: no such limit. */
  readonly to: number | null
  readonly policy: BundlePolicy
  readonly acceptsAnyCode: boolean
  readonly hasChain: boolean
  /** Events of earlier blocks are not read. */
  readonly fromBlock: number
  /** Why records are not checked. Null: records are checked. */
  readonly recordsLeftOut: string | null
  /** True if the API key reads only its own records. Other records may then be missing. */
  readonly ownRecordsOnly: boolean
}

export type AuditTools = {
  readonly gateway: AuditedGateway
  readonly chain: ChainSource | null
  readonly scope: AuditScope
  readonly verifier: AttestationVerifier
  readonly recover: PointRecovery
  readonly payers: Payers
  readonly requests: RecordedRequests
  /** Heads of earlier logs. Enclaves received these heads at their start. */
  readonly named: NamedHeads
  readonly random: RandomBelow
  /** Unix milliseconds. */
  readonly nowMs: number
}

/** `chain` is null if no chain is used, or if the log is on another chain. */
export type LogContext = AuditTools & {
  readonly log: ServedLog
  readonly ledger: Ledger
  readonly index: HeadIndex
  readonly samples: Samples
}

export type LogReport = {
  readonly notary: string
  /** Number of leaves that the log had when the audit began. */
  readonly size: number
  /** This run covers the leaves from `startSize` to `endSize`. */
  readonly startSize: number
  readonly endSize: number
  readonly headCount: number
  /** The newest head that the leaves were compared with. */
  readonly matched: SignedHead | null
  /** True if the audit ran to its end. If false, no check has the outcome `passed`. */
  readonly isComplete: boolean
  readonly checks: readonly AuditCheck[]
  readonly findings: readonly AuditFinding[]
}

export type GatewayContext = AuditTools & {
  readonly ledger: Ledger
  readonly found: readonly ServedLog[]
  readonly reports: readonly LogReport[]
  /** Notaries of the logs that the gateway lists, and of the logs that an earlier run audited. */
  readonly listed: ReadonlySet<string>
  /** The newest block, read before the gateway listed its logs. Null if it was not read. */
  readonly newestBlock: number | null
  readonly isOneLog: boolean
}

export type AuditReport = {
  readonly logs: readonly LogReport[]
  /** Checks and findings of the gateway as a whole. */
  readonly checks: readonly AuditCheck[]
  readonly findings: readonly AuditFinding[]
}

/**
 * SHA-256 (hex) of the parts of a scope that must stay the same when an audit continues. With
 * another scope, some part of the log might never be checked.
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
    // Digests of earlier versions do not cover releases and blocks, and must stay valid.
    ...(policy.releases === undefined ? [] : [policy.releases]),
    ...(scope.fromBlock === 0 ? [] : [{ fromBlock: scope.fromBlock }]),
  ])
  return createHash('sha256').update(text).digest('hex')
}
