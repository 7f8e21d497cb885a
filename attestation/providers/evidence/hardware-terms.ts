import { equalBytes } from '../../bytes.ts'
import type { Json, JsonObject } from '../../json/value.ts'
import { isZero, PLATFORM_BITS, type PlatformInfo } from '../snp/report.ts'
import { SNP_PRODUCTS, type SnpProduct, TCB_LAYOUTS, type TcbVersion } from '../snp/tcb.ts'
import { TCB_STATUSES, type TcbStatus } from '../tdx/tcb-info.ts'
import type { TdxMeasurements } from '../tdx/tdx-policy.ts'
import type { ProviderKind } from './evidence-document.ts'
import {
  flagIn,
  hashesIn,
  policyForms,
  policyList,
  policyObject,
  tdxSetsIn,
  wholeIn,
} from './policy-members.ts'

export type TdxTerms = {
  readonly statuses: readonly TcbStatus[]
  readonly advisories: readonly string[]
  readonly evaluationNumberMin: number
  /** Null: not checked. */
  readonly evaluationNumberDays: number | null
  /** Accepted kinds of platform, 12 hex digits each. Null: not checked. */
  readonly fmspcs: readonly string[] | null
  /** Accepted firmware (MRTD and RTMR0). Only a policy of the kind tinfoil can restrict it. */
  readonly platforms: 'any' | readonly TdxMeasurements[]
}

/** A member that is null is not checked. */
export type SnpTerms = {
  readonly floors: Readonly<Partial<Record<SnpProduct, TcbVersion>>> | null
  readonly needsRevocationList: boolean
  readonly needsCommitted: boolean
  readonly vmpl: number
  readonly platform: Partial<PlatformInfo> | null
  readonly chipIds: readonly Uint8Array[] | null
}

/**
 * The terms without a policy. They are the strictest, but accept any firmware and any collateral.
 */
export const NO_TDX_TERMS: TdxTerms = {
  statuses: [],
  advisories: [],
  evaluationNumberMin: 0,
  evaluationNumberDays: null,
  fmspcs: null,
  platforms: 'any',
}

export const NO_SNP_TERMS: SnpTerms = {
  floors: null,
  needsRevocationList: true,
  needsCommitted: false,
  vmpl: 0,
  platform: null,
  chipIds: null,
}

const { invalid, textOf } = policyForms

/** Throws a FormatError that names the member, as readSnpTerms does. */
export function readTdxTerms(json: Json, kind: ProviderKind): TdxTerms {
  const given = policyObject(json, 'tdx', {
    required: ['evaluation_number_min', ...(kind === 'tinfoil' ? ['platforms'] : [])],
    optional: ['evaluation_number_days', 'statuses', 'advisories', 'fmspcs'],
  })
  const { statuses, advisories, fmspcs, platforms = 'any' } = given
  const { evaluation_number_min: min, evaluation_number_days: days } = given
  return {
    statuses: statuses === undefined ? [] : policyList(statuses, 'tdx.statuses', readStatus),
    advisories: advisories === undefined ? [] : policyList(advisories, 'tdx.advisories', textOf),
    evaluationNumberMin: policyForms.countOf(min, 'tdx.evaluation_number_min'),
    evaluationNumberDays:
      days === undefined ? null : policyForms.countOf(days, 'tdx.evaluation_number_days'),
    fmspcs:
      fmspcs === undefined
        ? null
        : policyList(fmspcs, 'tdx.fmspcs', (item, name) => policyForms.hexOf(item, name, 6)),
    platforms:
      platforms === 'any'
        ? 'any'
        : tdxSetsIn(platforms, 'tdx.platforms', { required: ['mrtd', 'rtmr0'], optional: [] }),
  }
}

/**
 * Combines each set of measurements with each platform, but for pairs that name two values of one
 * register.
 */
export function onPlatforms(
  sets: readonly TdxMeasurements[],
  platforms: TdxTerms['platforms'],
): readonly TdxMeasurements[] {
  if (platforms === 'any') return sets
  return platforms.flatMap(({ mrTd, rtmr0 }) =>
    sets
      .filter((set) => isSame(set.mrTd, mrTd) && isSame(set.rtmr0, rtmr0))
      .map((set) => ({ ...set, mrTd, rtmr0 })),
  )
}

function isSame(stated: Uint8Array | undefined, value: Uint8Array | undefined): boolean {
  return stated === undefined || value === undefined || equalBytes(stated, value)
}

const ACCEPTED_STATUSES = TCB_STATUSES.filter((status) => status !== 'Revoked')

function readStatus(json: Json, name: string): TcbStatus {
  const status = ACCEPTED_STATUSES.find((one) => one === json)
  if (status === undefined)
    throw invalid(name, `a status of Intel: ${ACCEPTED_STATUSES.join(', ')}`)
  return status
}

export function readSnpTerms(json: Json): SnpTerms {
  const { floors, needs_revocation_list, needs_committed, vmpl, platform_info, chip_ids } =
    policyObject(json, 'snp', {
      required: ['floors'],
      optional: ['needs_revocation_list', 'needs_committed', 'vmpl', 'platform_info', 'chip_ids'],
    })
  const level = wholeIn(vmpl, 'snp.vmpl', 0)
  if (level > 3) throw invalid('snp.vmpl', 'a number from 0 to 3')
  return {
    floors: readFloors(floors, 'snp.floors'),
    needsRevocationList: flagIn(needs_revocation_list, 'snp.needs_revocation_list', true),
    needsCommitted: flagIn(needs_committed, 'snp.needs_committed', false),
    vmpl: level,
    platform: platform_info === undefined ? null : readPlatform(platform_info),
    chipIds: chip_ids === undefined ? null : readChips(chip_ids),
  }
}

/** Each floor must have exactly the parts of its product. */
function readFloors(
  json: Json | undefined,
  name: string,
): Readonly<Partial<Record<SnpProduct, TcbVersion>>> {
  const floors = policyObject(json, name, { optional: SNP_PRODUCTS })
  const given = SNP_PRODUCTS.filter((product) => Object.hasOwn(floors, product))
  if (given.length === 0) throw invalid(name, `floors of one or more of ${SNP_PRODUCTS.join(', ')}`)
  return Object.fromEntries(
    given.map((product) => {
      const where = `${name}.${product}`
      const parts = Object.keys(TCB_LAYOUTS[product])
      const floor = policyObject(floors[product], where, { required: parts, optional: [] })
      for (const part of parts)
        if (policyForms.countOf(floor[part], `${where}.${part}`) > 255)
          throw invalid(`${where}.${part}`, 'a number from 0 to 255')
      return [product, floor as unknown as TcbVersion]
    }),
  )
}

const PLATFORM_MEMBERS: Readonly<Record<keyof PlatformInfo, string>> = {
  smt: 'smt',
  tsme: 'tsme',
  ecc: 'ecc',
  raplOff: 'rapl_off',
  ciphertextHiding: 'ciphertext_hiding',
  aliasCheck: 'alias_check_complete',
  iommuWriteSafe: 'iommu_write_safe',
  trustedIo: 'trusted_io',
}

function readPlatform(json: Json): Partial<PlatformInfo> {
  const name = 'snp.platform_info'
  const given: JsonObject = policyObject(json, name, { optional: Object.values(PLATFORM_MEMBERS) })
  const bits = PLATFORM_BITS.flatMap((bit) => {
    const member = PLATFORM_MEMBERS[bit]
    const isNamed = Object.hasOwn(given, member)
    return isNamed ? [[bit, flagIn(given[member], `${name}.${member}`, false)] as const] : []
  })
  if (bits.length === 0) throw invalid(name, 'an object of one or more bits')
  return Object.fromEntries(bits)
}

function readChips(json: Json): readonly Uint8Array[] {
  const ids = hashesIn(json, 'snp.chip_ids', 64)
  if (ids.some(isZero)) throw invalid('snp.chip_ids', 'ids of chips: zeros stand for a masked id')
  return ids
}
