import { decodeHex } from '../../bytes.ts'
import { isCount } from '../../json/value.ts'
import { hasOwnMembersAlone, ownMembers } from '../../own-members.ts'
import { demand, isBytesOf, isListOf, optionsOf } from '../policy-options.ts'
import { TCB_STATUSES, type TcbStatus } from './tcb-info.ts'

/** Measurements of a TD, 48 bytes each. A member that is left out is not compared. */
export type TdxMeasurements = {
  readonly mrTd?: Uint8Array
  readonly rtmr0?: Uint8Array
  readonly rtmr1?: Uint8Array
  readonly rtmr2?: Uint8Array
  readonly rtmr3?: Uint8Array
  readonly mrSeam?: Uint8Array
  readonly mrConfigId?: Uint8Array
  readonly mrOwner?: Uint8Array
  readonly mrOwnerConfig?: Uint8Array
}

/** The bits of a 64-bit field that must be set, and the bits that may be set. */
export type BitRules = { readonly required: bigint; readonly allowed: bigint }

/**
 * What the caller demands from a quote. A member may be left out, but not be undefined or null.
 * Debugging, a service TD and a revoked TCB are refused by every policy.
 */
export type TdxPolicy = {
  /**
   * The accepted code: the quote must have all values of one set. `'any'` accepts all code. An
   * empty list or set is refused.
   */
  readonly measurements: 'any' | readonly TdxMeasurements[]
  /** Statuses that are accepted beside UpToDate. Revoked is not allowed. Default []. */
  readonly statuses?: readonly TcbStatus[]
  /** Advisories that are accepted where a status is not UpToDate. Default []. */
  readonly advisories?: readonly string[]
  /**
   * The lowest accepted tcbEvaluationDataNumber of the collateral. Collateral with a lower number
   * is from before a TCB recovery. There is no default, because each default ages.
   */
  readonly evaluationNumberMin: number
  /**
   * A number of Intel's list is needed so many days after its recovery. Evidence then needs the
   * list. Default: not checked.
   */
  readonly evaluationNumberDays?: number
  /** The accepted kinds of platform (FMSPC, 12 lower-case hex digits). Default: not checked. */
  readonly fmspcs?: readonly string[]
  /** Rules for TDATTRIBUTES, whose first byte must be zero. Default TD_ATTRIBUTES_DEFAULT. */
  readonly tdAttributes?: BitRules
  /** Rules for XFAM. Default XFAM_DEFAULT. */
  readonly xfam?: BitRules
  /** The report data (64 bytes) that the quote must have. Default: not checked. */
  readonly reportData?: Uint8Array
  /** The roots that are trusted, by SHA-256 of their DER. Default [INTEL_ROOT_SHA256]. */
  readonly roots?: readonly Uint8Array[]
}

/** SHA-256 of Intel's SGX Root CA (certificates.trustedservices.intel.com/IntelSGXRootCA.der). */
export const INTEL_ROOT_SHA256 = decodeHex(
  '44a0196b2b99f889b8e149e95b807a350e7424964399e885a7cbb8ccfab674d3',
)

/**
 * SEPT_VE_DISABLE (bit 28) must be set. PKS (30), KL (31) and PERFMON (63) may be set. The other
 * bits are reserved, or allow debugging or migration of the TD.
 */
const TD_ATTRIBUTES_DEFAULT: BitRules = {
  required: 1n << 28n,
  allowed: (1n << 28n) | (1n << 30n) | (1n << 31n) | (1n << 63n),
}

/** x87 and SSE must be set. The other bits that the TDX module defines may be set. */
const XFAM_DEFAULT: BitRules = { required: 0x3n, allowed: 0x6dbe7n }

/** A member that is null is not checked. */
export type ResolvedTdxPolicy = Required<
  Omit<TdxPolicy, 'evaluationNumberDays' | 'fmspcs' | 'reportData'>
> & {
  readonly evaluationNumberDays: number | null
  readonly fmspcs: readonly string[] | null
  readonly reportData: Uint8Array | null
}

/**
 * Sets the defaults and checks every member, because a wrong value from JavaScript could disable a
 * check. Throws PolicyError.
 */
export function resolveTdxPolicy(given: TdxPolicy): ResolvedTdxPolicy {
  const policy = optionsOf(given, OPTIONS, 'a TDX policy')
  const { measurements, statuses = [], advisories = [], fmspcs, reportData } = policy
  const { tdAttributes = TD_ATTRIBUTES_DEFAULT, xfam = XFAM_DEFAULT } = policy
  const { evaluationNumberMin, evaluationNumberDays } = policy
  const { roots = [INTEL_ROOT_SHA256] } = policy
  if (measurements !== 'any') checkMeasurementSets(measurements)
  demand(isListOf(statuses, isAcceptable), 'statuses of Intel without Revoked')
  demand(
    isListOf(advisories, (id) => typeof id === 'string'),
    'advisories as strings',
  )
  demand(Number.isSafeInteger(evaluationNumberMin), 'evaluationNumberMin as a whole number')
  demand(
    evaluationNumberDays === undefined || isCount(evaluationNumberDays),
    'evaluationNumberDays as a whole number',
  )
  demand(
    fmspcs === undefined || (isListOf(fmspcs, isFmspc) && fmspcs.length > 0),
    'fmspcs: one or more of 12 lower-case hex digits',
  )
  demand(isBitRules(tdAttributes), 'tdAttributes of required and allowed bits, as bigint')
  demand(isBitRules(xfam), 'xfam of required and allowed bits, as bigint')
  demand(
    reportData === undefined || isBytesOf(reportData, REPORT_DATA_BYTES),
    `reportData of ${REPORT_DATA_BYTES} bytes`,
  )
  demand(
    isListOf(roots, (root) => isBytesOf(root, 32)) && roots.length > 0,
    'one or more roots as SHA-256 fingerprints',
  )
  return {
    measurements,
    statuses,
    advisories,
    evaluationNumberMin,
    evaluationNumberDays: evaluationNumberDays ?? null,
    fmspcs: fmspcs ?? null,
    tdAttributes,
    xfam,
    reportData: reportData ?? null,
    roots,
  }
}

/** Refuses an empty list. Throws PolicyError. */
export function checkMeasurementSets(sets: unknown): void {
  demand(
    isListOf(sets, isMeasurementSet) && sets.length > 0,
    "measurements: 'any', or one or more sets of one or more values of 48 bytes",
  )
}

const OPTIONS: Readonly<Record<keyof TdxPolicy, true>> = {
  measurements: true,
  statuses: true,
  advisories: true,
  evaluationNumberMin: true,
  evaluationNumberDays: true,
  fmspcs: true,
  tdAttributes: true,
  xfam: true,
  reportData: true,
  roots: true,
}

const MEASUREMENTS: Readonly<Record<keyof TdxMeasurements, true>> = {
  mrTd: true,
  rtmr0: true,
  rtmr1: true,
  rtmr2: true,
  rtmr3: true,
  mrSeam: true,
  mrConfigId: true,
  mrOwner: true,
  mrOwnerConfig: true,
}

const MEASUREMENT_BYTES = 48
const REPORT_DATA_BYTES = 64

function isMeasurementSet(set: unknown): boolean {
  if (!hasOwnMembersAlone(set)) return false
  const entries = Object.entries(set)
  return (
    entries.length > 0 &&
    entries.every(
      ([name, value]) => Object.hasOwn(MEASUREMENTS, name) && isBytesOf(value, MEASUREMENT_BYTES),
    )
  )
}

function isAcceptable(status: unknown): boolean {
  return status !== 'Revoked' && TCB_STATUSES.some((one) => one === status)
}

function isFmspc(fmspc: unknown): boolean {
  return typeof fmspc === 'string' && /^[0-9a-f]{12}$/.test(fmspc)
}

function isBitRules(rules: unknown): boolean {
  if (!hasOwnMembersAlone(rules)) return false
  const { required, allowed }: Partial<BitRules> = ownMembers(rules)
  return typeof required === 'bigint' && typeof allowed === 'bigint'
}
