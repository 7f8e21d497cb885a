import { equalBytes } from '../../bytes.ts'
import { demand, judgedAt } from '../policy-options.ts'
import {
  blockedBy,
  createProviderChecks,
  established,
  type ProviderCheck,
  type ProviderChecks,
} from '../provider-checks.ts'
import { isSignedByChain, readSnpChain, type SnpCertificates, verifySnpLinks } from './chain.ts'
import {
  checkChip,
  checkCommitted,
  checkFloors,
  checkGuestPolicy,
  checkPlatformInfo,
  checkProduct,
  checkTcb,
  checkVmpl,
  isProvisional,
  matchChip,
  matchHostData,
  matchMeasurement,
  matchReportData,
  type SnpTcbs,
} from './checks.ts'
import { type ResolvedSnpPolicy, resolveSnpPolicy, type SnpPolicy } from './policy.ts'
import { decodeSnpReport, type SnpReport } from './report.ts'
import { checkRevocation } from './revocation.ts'
import { refuseReport, SNP_CHECKS, type SnpCheckName } from './snp-rules.ts'
import type { SnpProduct } from './tcb.ts'

/** Attacker-controlled. */
export type SnpEvidence = SnpCertificates & {
  /** 1184 bytes. */
  readonly report: Uint8Array
  /** DER of the ARK's list. Null if no list was kept. */
  readonly revocationList: Uint8Array | null
}

export type SnpFacts = Omit<SnpReport, 'tcb' | 'cpu' | 'signed' | 'signature'> & {
  readonly product: SnpProduct
  /** The cloud provider of a VLEK. Null for a VCEK. */
  readonly provider: string | null
  readonly tcbs: SnpTcbs
  /** The running firmware is not committed, so the host can go back to older firmware. */
  readonly isProvisional: boolean
  /** The report and its certificate state an older TCB than the TCB that runs. */
  readonly isReportedBehind: boolean
  /** Null unless the check "chip" passed. */
  readonly hardwareId: Uint8Array | null
  /**
   * The earliest end of validity of the certificates and the revocation list, Unix milliseconds.
   */
  readonly endsAtMs: number
}

/** `facts` is null unless the checks of chain, signature, product and TCB passed. */
type SnpJudgement = {
  readonly facts: SnpFacts | null
  readonly checks: readonly ProviderCheck<SnpCheckName>[]
}

/**
 * Judges an attacker-controlled AMD SEV-SNP report under `policy` at the time `at`: all checks of
 * rules.md, in their order. Accept the report only if `requireChecks(checks)` returns.
 *
 * It proves the launch measurement, and NOT that the code is good. Without a nonce in REPORT_DATA,
 * the report can be old. Without a key in REPORT_DATA, the caller may talk to another guest. Throws
 * only PolicyError, for a fault in the call.
 *
 * @example
 * const evidence = { report, vek, ask, ark, revocationList }
 * const { facts, checks } = await verifySnpReport(evidence, { measurements }, at)
 * requireChecks(checks)
 * console.log(facts?.product) // Genoa
 */
export async function verifySnpReport(
  evidence: SnpEvidence,
  policy: SnpPolicy,
  at: Date,
): Promise<SnpJudgement> {
  const demanded: Demand = { ...resolveSnpPolicy(policy), atMs: judgedAt(at) }
  demandForm(evidence)
  const checks = createProviderChecks(SNP_CHECKS)
  const authentic = await establish(checks, evidence, demanded)
  await checkPolicy(checks, authentic, demanded)
  return { facts: authentic === null ? null : factsOf(authentic), checks: checks.list() }
}

type Checks = ProviderChecks<SnpCheckName>
type Demand = ResolvedSnpPolicy & { readonly atMs: number }

function demandForm({ report, vek, ask, ark, revocationList }: SnpEvidence): void {
  const parts = [report, vek, ask, ark, ...(revocationList === null ? [] : [revocationList])]
  const areBytes = parts.every((part) => part instanceof Uint8Array)
  demand(areBytes, 'report, vek, ask, ark as Uint8Arrays, and revocationList as one or null')
}

type Authentic = Pick<SnpFacts, 'product' | 'provider' | 'tcbs' | 'hardwareId' | 'endsAtMs'> & {
  readonly report: SnpReport
}

/** Null if the check of chain, signature, product or TCB did not pass. */
async function establish(
  { make }: Checks,
  evidence: SnpEvidence,
  demanded: Demand,
): Promise<Authentic | null> {
  const report = await make('report layout', () => {
    const decoded = decodeSnpReport(evidence.report)
    return established(decoded, `version ${decoded.version}`)
  })
  let holds: Promise<boolean> | null = null
  const chain = await make('certificate chain', async () => {
    if (report === null) return blockedBy('report layout')
    const read = await readSnpChain(evidence, { ...demanded, signer: report.signer })
    // Starts first, because it is slow. `holds` is read only if verifySnpLinks does not throw.
    holds = isSignedByChain(report, read)
    await verifySnpLinks(read)
    return established(read, `${report.signer} by the ARK of ${read.rootProduct}`)
  })
  const listEndsMs = await make('revocation', () => {
    if (chain === null) return blockedBy('certificate chain')
    return checkRevocation(evidence.revocationList, { ...chain, ...demanded })
  })
  const signed = await make('report signature', async () => {
    if (report === null || chain === null) return blockedBy('certificate chain')
    if (!(await holds))
      throw refuseReport('signature_invalid', "expected a signature by the certificate's key")
    return established({ report, chain })
  })
  const found = await make('product', () =>
    signed ? checkProduct(signed.report, signed.chain) : blockedBy('report signature'),
  )
  const ready = found && signed
  const tcbs = await make('TCB of the certificate', () =>
    ready ? checkTcb(ready.report, ready.chain) : blockedBy('product'),
  )
  const hardwareId = await make('chip', () =>
    ready ? checkChip(ready.report, ready.chain) : blockedBy('product'),
  )
  if (!found || !ready || !tcbs) return null
  const { vek, ask, ark } = ready.chain
  const ends = [vek, ask, ark].map(({ notAfterMs }) => notAfterMs)
  const endsAtMs = Math.min(...ends, listEndsMs ?? Number.POSITIVE_INFINITY)
  return { report: ready.report, ...found, tcbs, hardwareId, endsAtMs }
}

async function checkPolicy(
  { make }: Checks,
  authentic: Authentic | null,
  demanded: Demand,
): Promise<void> {
  const report = authentic?.report
  const blocked = blockedBy('TCB of the certificate')
  await make('debug and migration off', () => (report ? checkGuestPolicy(report) : blocked))
  await make('VMPL', () => (report ? checkVmpl(report, demanded) : blocked))
  await make('TCB floor', () => (authentic ? checkFloors(authentic, demanded) : blocked))
  await make('measurement', () => (report ? matchMeasurement(report, demanded) : blocked))
  await make('host data', () => (report ? matchHostData(report, demanded) : blocked))
  await make('report data', () => (report ? matchReportData(report, demanded) : blocked))
  await make('committed firmware', () => (report ? checkCommitted(report, demanded) : blocked))
  await make('platform info', () => (report ? checkPlatformInfo(report, demanded) : blocked))
  await make('accepted chip', () => (report ? matchChip(report, demanded) : blocked))
}

function factsOf({ report, ...found }: Authentic): SnpFacts {
  const { tcb: _tcb, cpu: _cpu, signed: _signed, signature: _signature, ...fields } = report
  return {
    ...fields,
    ...found,
    isProvisional: isProvisional(report),
    isReportedBehind: !equalBytes(report.tcb.reported, report.tcb.current),
  }
}
