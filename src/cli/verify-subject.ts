import type { KeptExchange } from '../../attestation/compare-exchange.ts'
import { decodeAttestationPayload } from '../../attestation/nitro/document.ts'
import type { AttestationPolicy } from '../../attestation/nitro/policy.ts'
import { type AttestationVerifier, verifyAttestation } from '../../attestation/nitro/verify-attestation.ts'
import { verifyRecord } from '../../attestation/verify-record.ts'
import type { Outcome } from './bundle-options.ts'
import { checkAttestation } from './check-attestation.ts'
import { compareKept, tellKept } from './kept-exchange.ts'
import type { Subject } from './read-subjects.ts'
import { judgeReport, type SubjectReport } from './verify-report.ts'

/** What is demanded of a record beside that it holds. */
type SubjectDemands = {
  /** Null: the attestation document is not looked at. */
  readonly policy: AttestationPolicy | null
  /** How a cut answer may have ended to be taken all the same. */
  readonly allowOutcome?: readonly Outcome[]
  /** Verifies attestation documents. Default: with no revocation lists. */
  readonly verifier?: AttestationVerifier
  /** What the caller kept, to be compared. */
  readonly kept?: KeptExchange
}

/**
 * Checks one record, or one answer with its request, and its attestation document when a policy says what to expect of it.
 * Never throws for what the record says.
 *
 * Does NOT prove that `tx_hash` anchors the record, nor that `id` is what the gateway gave.
 */
export async function verifySubject(
  { record, request, chunks }: Subject,
  { policy, allowOutcome = [], verifier = { verify: verifyAttestation }, kept = {} }: SubjectDemands,
): Promise<SubjectReport> {
  const given = {
    ...(request === undefined ? {} : { request }),
    ...(chunks === undefined ? {} : { chunks }),
  }
  const report = verifyRecord(record, { ...given, decodeAttestation: decodeAttestationPayload })
  return judgeReport(record, report, {
    attestation: await checkAttestation(record, policy, verifier),
    allowOutcome,
    exchange: request === undefined ? compareKept(record, kept) : tellKept(record, { request, chunks }),
  })
}
