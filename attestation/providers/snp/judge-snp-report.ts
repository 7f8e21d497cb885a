import { equalBytes } from '../../bytes.ts'
import { PolicyError } from '../../nitro/policy.ts'
import {
  createProviderChecks,
  established,
  type ProviderCheck,
  type ProviderChecks,
} from '../provider-checks.ts'
import { type SnpCertificates, verifyReportSignature, verifySnpChain } from './chain.ts'
import {
  checkChip,
  checkFloors,
  checkGuestPolicy,
  checkHostData,
  checkMeasurement,
  checkProduct,
  checkReportData,
  checkTcb,
  checkVmpl,
  type SnpTcbs,
} from './checks.ts'
import {
  type ResolvedSnpPolicy,
  resolveSnpPolicy,
  type SnpPolicy,
  type SnpRoots,
} from './policy.ts'
import { decodeSnpReport, type FirmwareVersion, type SnpReport } from './report.ts'
import { checkRevocation } from './revocation.ts'
import { SNP_CHECKS, type SnpCheckName } from './snp-rules.ts'
import type { SnpProduct } from './tcb.ts'

/** A report with all that its judgement needs. All of it may be written by an attacker. */
export type SnpEvidence = SnpCertificates & {
  /** The report, 1184 bytes. */
  readonly report: Uint8Array
  /** DER of the ARK's certificate revocation list. Absent: revocation is not checked. */
  readonly revocationList?: Uint8Array
}

/** The facts that a report proves under its policy. */
export type SnpFacts = Omit<SnpReport, 'tcb' | 'cpu' | 'signed' | 'signature'> & {
  readonly product: SnpProduct
  readonly tcb: SnpTcbs
  /** The newer firmware that runs is not committed: the host may still go back to the older. */
  readonly isProvisional: boolean
  /** The certificate, and the reported TCB, are of older firmware than the firmware that runs. */
  readonly isReportedBehind: boolean
  /** The chip, if the report names the chip of the certificate. */
  readonly hardwareId: Uint8Array | null
  /** The cloud provider that a VLEK is for. */
  readonly provider: string | null
  /** The time at which all certificates had to be valid, Unix milliseconds. */
  readonly verifiedAtMs: number
}

/** A judged report. `facts` is null if any check failed. */
export type SnpJudgement = {
  readonly facts: SnpFacts | null
  /** Each check of SNP_CHECKS once, in order. A check that was not made has not passed. */
  readonly checks: readonly ProviderCheck<SnpCheckName>[]
}

/**
 * Judges an AMD SEV-SNP attestation report under `policy` at the time `at`, by the rules of
 * rules.md. It does not prove that the code is any good, only which launch measurement it has; nor
 * that the report is new, or that the caller talks to that guest, unless REPORT_DATA ties a nonce
 * or a key; nor that nothing was revoked, without a list. Throws PolicyError for a call to fix.
 */
export async function judgeSnpReport(
  evidence: SnpEvidence,
  policy: SnpPolicy,
  at: Date,
): Promise<SnpJudgement> {
  const demanded = resolveSnpPolicy(policy)
  const atMs = at.getTime()
  if (Number.isNaN(atMs)) throw new PolicyError('expected a valid time as Date')
  checkForm(evidence)
  const list = createProviderChecks<SnpCheckName>()
  const authentic = await establish(evidence, { list, roots: demanded.roots, atMs })
  if (authentic !== null) await checkPolicy(authentic, { list, demanded })
  const made = new Set(list.checks.map(({ name }) => name))
  for (const name of SNP_CHECKS)
    if (!made.has(name)) await list.make(name, () => ({ notChecked: 'an earlier check failed' }))
  const facts = authentic === null || hasFailed(list) ? null : factsOf(authentic, atMs)
  return { facts, checks: list.checks }
}

function checkForm({ report, vek, ask, ark, revocationList }: SnpEvidence): void {
  const parts = [report, vek, ask, ark, ...(revocationList === undefined ? [] : [revocationList])]
  if (!parts.every((part) => part instanceof Uint8Array))
    throw new PolicyError('expected report, vek, ask, ark and revocationList as Uint8Arrays')
}

type Authentic = {
  readonly report: SnpReport
  readonly product: SnpProduct
  readonly provider: string | null
  readonly tcbs: SnpTcbs
  readonly hardwareId: Uint8Array | null
}

/** The report and what its chain proves about it. Null if a check failed. */
async function establish(
  evidence: SnpEvidence,
  {
    list,
    roots,
    atMs,
  }: {
    readonly list: ProviderChecks<SnpCheckName>
    readonly roots: SnpRoots
    readonly atMs: number
  },
): Promise<Authentic | null> {
  const report = await list.make('report layout', () => {
    const decoded = decodeSnpReport(evidence.report)
    return established(decoded, `version ${decoded.version}`)
  })
  if (report === null) return null
  const chain = await list.make('certificate chain', async () => {
    const { signer } = report
    const verified = await verifySnpChain(evidence, { signer, roots, atMs })
    return established(verified, `${signer} by the ARK of ${verified.rootProduct}`)
  })
  if (chain === null) return null
  const { revocationList = null } = evidence
  await list.make('revocation', () => checkRevocation(revocationList, { ...chain, atMs }))
  await list.make('report signature', () => verifyReportSignature(report, chain))
  if (hasFailed(list)) return null
  const found = await list.make('product', () => checkProduct(report, chain))
  if (found === null) return null
  const tcbs = await list.make('TCB of the certificate', () => checkTcb(report, chain))
  if (tcbs === null) return null
  const hardwareId = await list.make('chip', () => checkChip(report, chain))
  return hasFailed(list) ? null : { report, ...found, tcbs, hardwareId }
}

async function checkPolicy(
  { report, product, tcbs }: Authentic,
  {
    list,
    demanded,
  }: { readonly list: ProviderChecks<SnpCheckName>; readonly demanded: ResolvedSnpPolicy },
): Promise<void> {
  await list.make('debug and migration off', () => checkGuestPolicy(report))
  await list.make('VMPL', () => checkVmpl(report, demanded))
  await list.make('TCB floor', () => checkFloors(tcbs, { floors: demanded.floors, product }))
  await list.make('measurement', () => checkMeasurement(report, demanded))
  await list.make('host data', () => checkHostData(report, demanded))
  await list.make('report data', () => checkReportData(report, demanded))
}

function hasFailed({ checks }: ProviderChecks<SnpCheckName>): boolean {
  return checks.some(({ outcome }) => outcome === 'failed')
}

function factsOf({ report, tcbs, ...found }: Authentic, verifiedAtMs: number): SnpFacts {
  const { tcb: _tcb, cpu: _cpu, signed: _signed, signature: _signature, ...fields } = report
  return {
    ...fields,
    ...found,
    tcb: tcbs,
    isProvisional:
      !equalBytes(report.tcb.current, report.tcb.committed) ||
      !isSameFirmware(report.currentFirmware, report.committedFirmware),
    isReportedBehind: !equalBytes(report.tcb.reported, report.tcb.current),
    verifiedAtMs,
  }
}

function isSameFirmware(one: FirmwareVersion, other: FirmwareVersion): boolean {
  return one.major === other.major && one.minor === other.minor && one.build === other.build
}
