import { concatBytes, equalBytes, sha256 } from '../../bytes.ts'
import {
  type EcdsaKey,
  importPoint,
  isPointOnCurve,
  isSignatureInRange,
  P256,
  verifyEcdsa,
} from '../../nitro/ecdsa.ts'
import { judgedAt } from '../policy-options.ts'
import {
  blockedBy,
  createProviderChecks,
  established,
  notGiven,
  type ProviderCheck,
  type ProviderChecks,
  waived,
} from '../provider-checks.ts'
import type { TdxCollateral } from './collateral.ts'
import { type Pck, verifyPck } from './pck.ts'
import { decodeTdxQuote, type TdxBody, type TdxQuote } from './quote.ts'
import {
  checkNumberAge,
  checkStatuses,
  matchModule,
  matchPlatform,
  matchQuotingEnclave,
  worstStatus,
} from './tcb.ts'
import type { EvaluationNumbers, QeIdentity, TcbInfo, TcbStatus, TcbVerdict } from './tcb-info.ts'
import {
  checkFmspc,
  checkReportData,
  checkServiceTd,
  checkTdAttributes,
  checkXfam,
  matchMeasurements,
} from './td-checks.ts'
import { TDX_CHECKS, type TdxCheckName, tdxFault } from './tdx-codes.ts'
import { type ResolvedTdxPolicy, resolveTdxPolicy, type TdxPolicy } from './tdx-policy.ts'
import {
  type CollateralDemand,
  checkIntelLists,
  checkPlatformKind,
  type ForceWindow,
  readIntelLists,
  verifyEvaluationNumbers,
  verifyQeIdentity,
  verifyTcbInfo,
} from './verify-collateral.ts'

/** `collateral` is null if it was not kept. */
export type TdxEvidence = {
  readonly quote: Uint8Array
  readonly collateral: TdxCollateral | null
}

type TdxTcb = {
  readonly status: TcbStatus
  /** The advisories of all parts, each once. */
  readonly advisories: readonly string[]
  readonly quotingEnclave: TcbVerdict
  readonly platform: TcbVerdict
  /** Null for module version 0, which is part of the platform's level. */
  readonly module: TcbVerdict | null
  /** The lower of the collateral's two tcbEvaluationDataNumbers. */
  readonly evaluationNumber: number
}

/** A member is null if its check did not pass. */
export type TdxFacts = {
  readonly version: 4 | 5
  readonly body: TdxBody
  /** Hex, as in Pck. */
  readonly fmspc: string
  readonly pceId: string
  readonly ppid: string
  readonly tcb: TdxTcb | null
  /** The period in which all collateral and all certificates are valid. */
  readonly window: ForceWindow | null
  /** Index in the `measurements` of the policy. */
  readonly matchedSet: number | null
}

/** `facts` is null unless the signatures of the quote are valid. */
export type TdxJudgement = {
  readonly facts: TdxFacts | null
  readonly checks: readonly ProviderCheck<TdxCheckName>[]
}

/**
 * Judges attacker-controlled TDX evidence under `policy` at the time `at`: all checks of rules.md,
 * in their order. A check is not made if a check that it builds on did not pass. Accept the
 * evidence only if `requireChecks(checks)` returns.
 *
 * It proves that a TD with these measurements chose `reportData`, on a genuine Intel platform. It
 * does NOT prove that the code is good, or that the TD is safe from Intel, from probes by the
 * machine's owner, or from side channels. Without a nonce in the report data, the quote can be old.
 * Without a key in the report data, the caller may talk to another TD. Throws only PolicyError, for
 * a fault in the call.
 *
 * @example
 * const { facts, checks } = await verifyTdxQuote({ quote, collateral }, { measurements }, at)
 * requireChecks(checks)
 * console.log(facts?.tcb?.status) // UpToDate
 */
export async function verifyTdxQuote(
  { quote: bytes, collateral }: TdxEvidence,
  policy: TdxPolicy,
  at: Date,
): Promise<TdxJudgement> {
  const demand = { ...resolveTdxPolicy(policy), atMs: judgedAt(at), issuers: new Map() }
  const checks = createProviderChecks(TDX_CHECKS)
  const quote = await checks.make('format', () => {
    const decoded = decodeTdxQuote(bytes)
    return established(decoded, `version ${decoded.version}, TD ${decoded.body.tdVersion}`)
  })
  const started = checks.make('PCK chain', async () => {
    if (quote === null) return blockedBy('format')
    const verified = await verifyPck(quote.pckChain, demand)
    return established(verified, `FMSPC ${verified.fmspc}`)
  })
  const [signed, intel] = await Promise.all([
    verifySignatures(checks, quote, started),
    verifyCollateral(checks, { collateral, started, demand }),
  ])
  const tcb = await judgeTcb(checks, { signed, intel, demand })
  const matchedSet = await checkTd(checks, signed, demand)
  const facts = signed === null ? null : factsOf(signed, { tcb, intel, matchedSet })
  return { facts, checks: checks.list() }
}

type Checks = ProviderChecks<TdxCheckName>
type Demand = ResolvedTdxPolicy & CollateralDemand

type SignedQuote = { readonly quote: TdxQuote; readonly pck: Pck }

/**
 * Verifies both signatures at the same time. If the QE report's signature is not valid, the result
 * for the quote's signature is not used.
 */
async function verifySignatures(
  { make }: Checks,
  quote: TdxQuote | null,
  started: Promise<Pck | null>,
): Promise<SignedQuote | null> {
  const quoteHolds = quote === null ? null : verifyQuoteSignature(quote)
  const pck = await started
  const stated = await make('QE report', async () => {
    if (quote === null || pck === null) return blockedBy('PCK chain')
    const { qeReport, qeSignature } = quote
    if (!(await holds(pck.key, qeSignature, qeReport.bytes)))
      throw tdxFault('qe_signature', "expected a QE report that the platform's key signed")
    return established({ quote, pck })
  })
  const bound = await make('attestation key', () => {
    if (stated === null) return blockedBy('QE report')
    checkAttestationKey(stated.quote)
    return established(stated)
  })
  return await make('quote signature', async () => {
    const holdsQuote = await quoteHolds
    if (bound === null) return blockedBy('attestation key')
    if (holdsQuote === 'no point')
      throw tdxFault('attestation_key_point', 'expected an attestation key on P-256')
    if (holdsQuote !== 'holds')
      throw tdxFault('quote_signature', 'expected a quote that the attestation key signed')
    return established(bound)
  })
}

async function verifyQuoteSignature({
  attestationKey,
  signature,
  signed,
}: TdxQuote): Promise<'holds' | 'broken' | 'no point'> {
  const point = concatBytes(Uint8Array.of(4), attestationKey) as Uint8Array<ArrayBuffer>
  const key = isPointOnCurve(point, P256) ? await importPoint(point, P256) : null
  if (key === null) return 'no point'
  return (await holds(key, signature, signed)) ? 'holds' : 'broken'
}

async function holds(
  key: EcdsaKey,
  signature: Uint8Array<ArrayBuffer>,
  data: Uint8Array<ArrayBuffer>,
): Promise<boolean> {
  return isSignatureInRange(signature, P256) && (await verifyEcdsa({ key, signature, data }))
}

function checkAttestationKey({ attestationKey, qeAuthData, qeReport: { reportData } }: TdxQuote) {
  if (!equalBytes(reportData.subarray(0, 32), sha256(concatBytes(attestationKey, qeAuthData))))
    throw tdxFault('attestation_key_mismatch', 'expected a QE report that states this key')
  if (reportData.subarray(32).some((byte) => byte !== 0))
    throw tdxFault('qe_report_data_not_zero', 'expected zeros after the hash in the QE report')
}

/** A member is null if it is missing or not valid. */
type IntelStatements = {
  readonly tcbInfo: TcbInfo | null
  readonly identity: QeIdentity | null
  readonly numbers: EvaluationNumbers | null
  readonly window: ForceWindow | null
}

async function verifyCollateral(
  { make }: Checks,
  {
    collateral,
    started,
    demand,
  }: {
    readonly collateral: TdxCollateral | null
    readonly started: Promise<Pck | null>
    readonly demand: Demand
  },
): Promise<IntelStatements> {
  const missing = notGiven(
    "Intel's whole collateral (TCB info, QE identity, PCK CRL, root CRL) was",
  )
  const verifiedInfo = make('TCB info', async () => {
    if (collateral === null) return missing
    const text = await verifyTcbInfo(collateral.tcbInfo, demand)
    const pck = await started
    if (pck === null) return blockedBy('PCK chain')
    checkPlatformKind(text.value, pck)
    return established(text, sayIssue(text.value))
  })
  const verifiedIdentity = make('QE identity', async () => {
    if (collateral === null) return missing
    const text = await verifyQeIdentity(collateral.qeIdentity, demand)
    return established(text, sayIssue(text.value))
  })
  const verifiedNumbers = make('evaluation numbers', async () => {
    if (demand.evaluationNumberDays === null) return waived('no age of the number was asked for')
    if (!collateral?.evaluationNumbers)
      return notGiven("Intel's list of evaluation numbers (tcbevaluationdatanumbers) was")
    const text = await verifyEvaluationNumbers(collateral.evaluationNumbers, demand)
    const stated = text.value.numbers.map(({ evaluationNumber }) => evaluationNumber)
    return established(text, stated.join(', '))
  })
  const checkedLists = make('revocation', async () => {
    if (collateral === null) return missing
    const pck = await started
    if (pck === null) return blockedBy('PCK chain')
    const reading = readIntelLists(collateral, pck)
    const [read, ...texts] = await Promise.all([
      reading,
      verifiedInfo,
      verifiedIdentity,
      verifiedNumbers,
    ])
    const others = texts.flatMap((one) => (one ? [one.certificates] : []))
    return established(await checkIntelLists(read, { pck, others, atMs: demand.atMs }))
  })
  const [info, identity, numbers, lists] = await Promise.all([
    verifiedInfo,
    verifiedIdentity,
    verifiedNumbers,
    checkedLists,
  ])
  const [tcbInfo, qeIdentity] = [info?.value ?? null, identity?.value ?? null]
  const issues = [tcbInfo, qeIdentity, ...(numbers ? [numbers.value] : [])].filter(
    (issue) => issue !== null,
  )
  const window = tcbInfo && qeIdentity && lists ? windowOf(lists, ...issues) : null
  return { tcbInfo, identity: qeIdentity, numbers: numbers?.value ?? null, window }
}

function sayIssue({ issueDateMs, evaluationNumber }: TcbInfo | QeIdentity): string {
  return `number ${evaluationNumber}, issued ${new Date(issueDateMs).toISOString()}`
}

function windowOf(
  lists: ForceWindow,
  ...issues: readonly Pick<TcbInfo, 'issueDateMs' | 'nextUpdateMs'>[]
): ForceWindow {
  return {
    fromMs: Math.max(lists.fromMs, ...issues.map(({ issueDateMs }) => issueDateMs)),
    toMs: Math.min(lists.toMs, ...issues.map(({ nextUpdateMs }) => nextUpdateMs)),
  }
}

async function judgeTcb(
  { make }: Checks,
  {
    signed,
    intel: { tcbInfo, identity, numbers },
    demand,
  }: {
    readonly signed: SignedQuote | null
    readonly intel: IntelStatements
    readonly demand: Demand
  },
): Promise<TdxTcb | null> {
  const quotingEnclave = await make('quoting enclave', () => {
    if (signed === null) return blockedBy('quote signature')
    if (identity === null) return blockedBy('QE identity')
    const level = matchQuotingEnclave(signed.quote.qeReport, identity)
    return established(level, level.status)
  })
  const platform = await make('platform TCB', () => {
    if (signed === null) return blockedBy('quote signature')
    if (tcbInfo === null) return blockedBy('TCB info')
    const level = matchPlatform(signed.pck, signed.quote.body, tcbInfo.levels)
    return established(level, level.status)
  })
  const module = await make('TDX module', () => {
    if (signed === null) return blockedBy('quote signature')
    if (tcbInfo === null) return blockedBy('TCB info')
    const level = matchModule(signed.quote.body, tcbInfo)
    return established({ level }, level?.status ?? "of version 0: the platform's level covers it")
  })
  const used = Math.min(tcbInfo?.evaluationNumber ?? 0, identity?.evaluationNumber ?? 0)
  await make('evaluation number', () => {
    if (tcbInfo === null) return blockedBy('TCB info')
    if (identity === null) return blockedBy('QE identity')
    const { evaluationNumberDays: daysMax, atMs } = demand
    if (daysMax === null) return established(used, `${used}`)
    if (numbers === null) return blockedBy('evaluation numbers')
    checkNumberAge(used, numbers, { atMs, daysMax })
    return established(used, `${used}`)
  })
  return await make('TCB status', () => {
    if (!quotingEnclave) return blockedBy('quoting enclave')
    if (!platform) return blockedBy('platform TCB')
    if (!module) return blockedBy('TDX module')
    const parts = [quotingEnclave, platform, ...(module.level ? [module.level] : [])]
    checkStatuses(parts, demand)
    const tcb: TdxTcb = {
      status: worstStatus(parts),
      advisories: [...new Set(parts.flatMap(({ advisories }) => advisories))],
      quotingEnclave,
      platform,
      module: module.level,
      evaluationNumber: used,
    }
    return established(tcb, [tcb.status, ...tcb.advisories].join(', '))
  })
}

/** Returns the index of the matched set. */
async function checkTd(
  { make }: Checks,
  signed: SignedQuote | null,
  demand: Demand,
): Promise<number | null> {
  const body = signed?.quote.body
  const blocked = blockedBy('quote signature')
  await make('FMSPC', () => (signed ? checkFmspc(signed.pck, demand) : blocked))
  await make('TD attributes', () => (body ? checkTdAttributes(body, demand) : blocked))
  await make('XFAM', () => (body ? checkXfam(body, demand) : blocked))
  await make('service TD', () => (body ? checkServiceTd(body) : blocked))
  await make('report data', () => (body ? checkReportData(body, demand) : blocked))
  return await make('measurements', () => (body ? matchMeasurements(body, demand) : blocked))
}

function factsOf(
  { quote: { version, body }, pck: { fmspc, pceId, ppid } }: SignedQuote,
  {
    tcb,
    intel: { window },
    matchedSet,
  }: {
    readonly tcb: TdxTcb | null
    readonly intel: IntelStatements
    readonly matchedSet: number | null
  },
): TdxFacts {
  return { version, body, fmspc, pceId, ppid, tcb, window, matchedSet }
}
