import { decodeHex, encodeHex } from '../../bytes.ts'
import type { Pck } from './pck.ts'
import type { QeReport, TdxBody } from './quote.ts'
import {
  type EvaluationNumbers,
  type PlatformLevel,
  type QeIdentity,
  type SvnLevel,
  TCB_STATUSES,
  type TcbInfo,
  type TcbStatus,
  type TcbVerdict,
  type TdxModuleIdentity,
} from './tcb-info.ts'
import { tdxFault } from './tdx-codes.ts'
import type { ResolvedTdxPolicy } from './tdx-policy.ts'

/**
 * Checks a quoting enclave against Intel's identity. Returns the first level whose SVN the enclave
 * reaches. Throws ProviderEvidenceError.
 */
export function matchQuotingEnclave(report: QeReport, identity: QeIdentity): SvnLevel {
  if (encodeHex(report.mrSigner) !== identity.mrSigner)
    throw tdxFault('qe_mr_signer', "expected a quoting enclave that Intel's key signed")
  if (report.isvProdId !== identity.isvProdId)
    throw tdxFault('qe_prod_id', `expected product ${identity.isvProdId} as quoting enclave`)
  if (!equalUnderMask(report.miscSelect, identity.miscSelect, identity.miscSelectMask))
    throw tdxFault('qe_misc_select', 'expected the MISCSELECT of the QE identity')
  if (!equalUnderMask(report.attributes, identity.attributes, identity.attributesMask))
    throw tdxFault('qe_attributes', 'expected the attributes of the QE identity')
  const level = identity.levels.find(({ isvSvn }) => report.isvSvn >= isvSvn)
  if (!level) throw tdxFault('qe_level_missing', 'expected a quoting enclave of a known level')
  return level
}

/**
 * Returns the first level whose SGX components, PCESVN and TDX components the platform reaches. TDX
 * components 0 and 1 (the SVN and version of the TDX module) are compared only for module version
 * 0: matchModule judges later versions. Throws ProviderEvidenceError.
 */
export function matchPlatform(
  { components, pceSvn }: Pick<Pck, 'components' | 'pceSvn'>,
  { teeTcbSvn }: Pick<TdxBody, 'teeTcbSvn'>,
  levels: readonly PlatformLevel[],
): PlatformLevel {
  const from = moduleVersion(teeTcbSvn) > 0 ? 2 : 0
  const lackIn = (level: PlatformLevel | undefined): string | null => {
    const { sgxComponents = [], pceSvn: pceSvnMin = 0, tdxComponents = [] } = level ?? {}
    if (pceSvn < pceSvnMin) return `PCESVN ${pceSvnMin}, got ${pceSvn}`
    const sgx = sgxComponents.findIndex((svn, index) => (components[index] ?? -1) < svn)
    if (sgx >= 0) return `SGX component ${sgx} of ${sgxComponents[sgx]}, got ${components[sgx]}`
    const tdx = tdxComponents.findIndex(
      (svn, index) => index >= from && (teeTcbSvn[index] ?? -1) < svn,
    )
    if (tdx >= 0) return `TDX component ${tdx} of ${tdxComponents[tdx]}, got ${teeTcbSvn[tdx]}`
    return null
  }
  const level = levels.find((one) => lackIn(one) === null)
  if (level) return level
  const lack = lackIn(levels.at(-1)) ?? 'a level'
  throw tdxFault(
    'tcb_level_missing',
    `expected a platform of a TCB level: the lowest needs ${lack}`,
  )
}

/**
 * Checks a TDX module of version 0 against `tdxModule`, and a later version against the identity of
 * that version. Returns the module's level. Null for version 0, whose SVN is part of the platform's
 * level. Throws ProviderEvidenceError.
 */
export function matchModule(
  body: Pick<TdxBody, 'teeTcbSvn' | 'mrSignerSeam' | 'seamAttributes'>,
  { tdxModule, moduleIdentities }: Pick<TcbInfo, 'tdxModule' | 'moduleIdentities'>,
): SvnLevel | null {
  const version = moduleVersion(body.teeTcbSvn)
  if (version === 0) {
    checkModule(body, tdxModule)
    return null
  }
  const id = `TDX_${encodeHex(Uint8Array.of(version)).toUpperCase()}`
  const identity = moduleIdentities.get(id)
  if (!identity)
    throw tdxFault('module_identity_missing', `expected an identity ${id} of the TDX module`)
  checkModule(body, identity)
  const isvSvn = body.teeTcbSvn[0] ?? -1
  const level = identity.levels.find((one) => isvSvn >= one.isvSvn)
  if (!level) throw tdxFault('module_level_missing', `expected a TDX module of a level of ${id}`)
  return level
}

function moduleVersion(teeTcbSvn: Uint8Array): number {
  return teeTcbSvn[1] ?? 0
}

function checkModule(
  { mrSignerSeam, seamAttributes }: Pick<TdxBody, 'mrSignerSeam' | 'seamAttributes'>,
  { mrSigner, attributes, attributesMask }: TdxModuleIdentity,
): void {
  if (encodeHex(mrSignerSeam) !== mrSigner)
    throw tdxFault('module_mr_signer', 'expected the MRSIGNERSEAM of the module identity')
  if (!equalUnderMask(seamAttributes, attributes, attributesMask))
    throw tdxFault('module_attributes', 'expected the SEAMATTRIBUTES of the module identity')
}

/** `expected` and `mask` are hex. They have as many bytes as `value`. */
function equalUnderMask(value: Uint8Array, expected: string, mask: string): boolean {
  const [bits, masks] = [decodeHex(expected), decodeHex(mask)]
  return value.every((byte, index) => {
    const of = masks[index] ?? 0xff
    return (byte & of) === ((bits[index] ?? 0) & of)
  })
}

/**
 * Refuses `used` if a newer number is of a recovery that is `daysMax` days old at `atMs`: the
 * sender chose older collateral. Throws ProviderEvidenceError.
 */
export function checkNumberAge(
  used: number,
  { numbers }: EvaluationNumbers,
  { atMs, daysMax }: { readonly atMs: number; readonly daysMax: number },
): void {
  const due = numbers.filter(({ recoveryMs }) => atMs - recoveryMs >= daysMax * DAY_MS)
  const least = Math.max(0, ...due.map(({ evaluationNumber }) => evaluationNumber))
  if (used < least)
    throw tdxFault(
      'evaluation_number_old',
      `expected tcbEvaluationDataNumber of at least ${least}, ${daysMax} days after its recovery, got ${used}`,
    )
}

const DAY_MS = 86_400_000

export function worstStatus(parts: readonly TcbVerdict[]): TcbStatus {
  const worst = Math.max(...parts.map(({ status }) => TCB_STATUSES.indexOf(status)))
  return TCB_STATUSES[worst] ?? 'Revoked'
}

/**
 * Accepts UpToDate. Accepts another status only if the policy lists the status and all advisories
 * of that level. Never accepts Revoked. The message names all that the policy lacks. Throws
 * ProviderEvidenceError.
 */
export function checkStatuses(
  parts: readonly TcbVerdict[],
  { statuses, advisories }: Pick<ResolvedTdxPolicy, 'statuses' | 'advisories'>,
): void {
  const open = parts.filter(({ status }) => status !== 'UpToDate')
  if (open.some(({ status }) => status === 'Revoked'))
    throw tdxFault('tcb_revoked', 'expected a TCB that is not revoked')
  const others = missingFrom(
    statuses,
    open.map(({ status }) => status),
  )
  const missing = missingFrom(
    advisories,
    open.flatMap((part) => part.advisories),
  )
  if (others.length > 0) {
    const named = [others.join(', '), ...(missing.length > 0 ? [missing.join(', ')] : [])]
    throw tdxFault('tcb_status_not_accepted', `expected accepted statuses, got ${named.join('; ')}`)
  }
  if (missing.length > 0)
    throw tdxFault(
      'tcb_advisory_not_accepted',
      `expected accepted advisories alone, got ${missing.join(', ')}`,
    )
}

/** The values that `accepted` lacks, each once. */
function missingFrom(accepted: readonly string[], values: readonly string[]): readonly string[] {
  return [...new Set(values)].filter((value) => !accepted.includes(value))
}
