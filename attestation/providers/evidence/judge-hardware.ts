import { encodeHex } from '../../bytes.ts'
import type { ProviderCheck } from '../provider-checks.ts'
import { type SnpFacts, verifySnpReport } from '../snp/verify-snp-report.ts'
import type { TdxBody } from '../tdx/quote.ts'
import type { TdxMeasurements } from '../tdx/tdx-policy.ts'
import { type TdxFacts, verifyTdxQuote } from '../tdx/verify-tdx-quote.ts'
import type { SnpTerms, TdxTerms } from './hardware-terms.ts'
import type { KeptCollateral } from './kept-collateral.ts'
import type { ProviderRoots } from './provider-policy.ts'

export type HardwareEvidence =
  | { readonly tee: 'TDX'; readonly quote: Uint8Array }
  | { readonly tee: 'SEV-SNP'; readonly report: Uint8Array }

export type AcceptedCode = {
  readonly tdx: 'any' | readonly TdxMeasurements[]
  readonly snp: 'any' | readonly Uint8Array[]
}

export type HardwareFacts = {
  readonly tee: 'TDX' | 'SEV-SNP'
  /** 64 bytes that the measured code chose. */
  readonly reportData: Uint8Array
  /** Hex by the name of the register. */
  readonly measurements: Readonly<Record<string, string>>
  /** Null if a check of the TCB did not pass. */
  readonly tcb: ProviderTcb | null
  /** The end of the evidence's and the collateral's validity, Unix milliseconds. Null: no end. */
  readonly endsAtMs: number | null
  /** Null for SEV-SNP. */
  readonly body: TdxBody | null
}

export type ProviderTcb = {
  /**
   * Intel: the worst status of all parts. AMD: `provisional` if the host can go back to older
   * firmware, `behind` if newer firmware runs than the report states, otherwise `committed`.
   */
  readonly status: string
  readonly advisories: readonly string[]
  /** AMD's reported versions by part. Null for TDX. */
  readonly versions: Readonly<Record<string, number>> | null
  /** The tcbEvaluationDataNumber of Intel's collateral. Null for SEV-SNP. */
  readonly evaluationNumber: number | null
}

/** `facts` is null unless the signature is valid. */
type HardwareJudgement = {
  readonly facts: HardwareFacts | null
  readonly checks: readonly ProviderCheck[]
}

/** Judges the hardware, but not the report data. The caller checks the report data. */
export async function judgeHardware(
  evidence: HardwareEvidence,
  demand: {
    readonly code: AcceptedCode
    readonly collateral: KeptCollateral
    readonly tdx: TdxTerms
    readonly snp: SnpTerms
    readonly roots: ProviderRoots
    readonly at: Date
  },
): Promise<HardwareJudgement> {
  const { code, collateral, tdx, snp, roots, at } = demand
  if (evidence.tee === 'TDX') {
    const { platforms: _, fmspcs, evaluationNumberDays, ...terms } = tdx
    const { facts, checks } = await verifyTdxQuote(
      { quote: evidence.quote, collateral: collateral.tdx },
      {
        ...terms,
        ...(fmspcs === null ? {} : { fmspcs }),
        ...(evaluationNumberDays === null ? {} : { evaluationNumberDays }),
        measurements: code.tdx,
        roots: roots.intel,
      },
      at,
    )
    return { facts: facts && tdxFactsOf(facts), checks: checks.filter(isJudged) }
  }
  const { floors, platform, chipIds, ...terms } = snp
  const { facts, checks } = await verifySnpReport(
    {
      report: evidence.report,
      ...(collateral.snp ?? NO_CHAIN),
      revocationList: collateral.snpList,
    },
    {
      ...terms,
      ...(floors === null ? {} : { floors }),
      ...(platform === null ? {} : { platform }),
      ...(chipIds === null ? {} : { chipIds }),
      measurements: code.snp,
      roots: roots.amd,
    },
    at,
  )
  return { facts: facts && snpFactsOf(facts), checks: checks.filter(isJudged) }
}

/** Stands for a missing chain. The check of the chain fails for empty certificates. */
const NO_CHAIN = { vek: new Uint8Array(), ask: new Uint8Array(), ark: new Uint8Array() }

/** False for the check "report data", because the caller checks the report data. */
function isJudged({ name }: ProviderCheck): boolean {
  return name !== 'report data'
}

function tdxFactsOf({ body, tcb, window }: TdxFacts): HardwareFacts {
  const registers = body.rtmrs.map((value, index) => [`rtmr${index}`, encodeHex(value)])
  return {
    tee: 'TDX',
    reportData: body.reportData,
    measurements: { mrtd: encodeHex(body.mrTd), ...Object.fromEntries(registers) },
    tcb: tcb && {
      status: tcb.status,
      advisories: tcb.advisories,
      versions: null,
      evaluationNumber: tcb.evaluationNumber,
    },
    endsAtMs: window?.toMs ?? null,
    body,
  }
}

function snpFactsOf(facts: SnpFacts): HardwareFacts {
  const { reportData, measurement, hostData, tcbs, endsAtMs } = facts
  const { isProvisional, isReportedBehind } = facts
  const status = isProvisional ? 'provisional' : isReportedBehind ? 'behind' : 'committed'
  return {
    tee: 'SEV-SNP',
    reportData,
    measurements: { measurement: encodeHex(measurement), host_data: encodeHex(hostData) },
    tcb: { status, advisories: [], versions: { ...tcbs.reported }, evaluationNumber: null },
    endsAtMs,
    body: null,
  }
}
