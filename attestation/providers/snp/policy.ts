import { decodeHex } from '../../bytes.ts'
import { hasOwnMembersAlone } from '../../own-members.ts'
import { demand, isBytesOf, isListOf, optionsOf } from '../policy-options.ts'
import { isZero, PLATFORM_BITS, type PlatformInfo } from './report.ts'
import { SNP_PRODUCTS, type SnpProduct, TCB_LAYOUTS, type TcbVersion } from './tcb.ts'

/** SHA-256 of the DER of the trusted ARKs, by product. */
export type SnpRoots = Readonly<Partial<Record<SnpProduct, readonly Uint8Array[]>>>

/** What the caller demands of a report. A member may be left out, but not be undefined or null. */
export type SnpPolicy = {
  /** The accepted launch measurements, 48 bytes each, at least one. `'any'`: not checked. */
  readonly measurements: 'any' | readonly Uint8Array[]
  /** The accepted values of HOST_DATA, 32 bytes each, at least one. Default: not checked. */
  readonly hostData?: readonly Uint8Array[]
  /** The 64 bytes of REPORT_DATA. Default: not checked. */
  readonly reportData?: Uint8Array
  /** The privilege level that must have asked for the report, 0 to 3. Default 0, the highest. */
  readonly vmpl?: number
  /**
   * The lowest accepted TCB by product, for the reported, the committed and the launch TCB. If a
   * policy has floors, a product without a floor is refused. Default: not checked.
   */
  readonly floors?: Readonly<Partial<Record<SnpProduct, TcbVersion>>>
  /** True: firmware that the host can replace by older firmware is refused. Default false. */
  readonly needsCommitted?: boolean
  /** Bits of PLATFORM_INFO that must be set (true) or clear (false). Default: not checked. */
  readonly platform?: Partial<PlatformInfo>
  /** The accepted CHIP_IDs, 64 bytes each, at least one, none of zeros. Default: not checked. */
  readonly chipIds?: readonly Uint8Array[]
  /** The trusted ARKs. Default AMD_ROOTS. */
  readonly roots?: SnpRoots
  /** True (default): evidence needs the ARK's revocation list. False waives this check. */
  readonly needsRevocationList?: boolean
}

/** Null in a member: the report is not checked for this member. */
export type ResolvedSnpPolicy = {
  readonly measurements: readonly Uint8Array[] | null
  readonly hostData: readonly Uint8Array[] | null
  readonly reportData: Uint8Array | null
  readonly vmpl: number
  readonly floors: NonNullable<SnpPolicy['floors']> | null
  readonly needsCommitted: boolean
  readonly platform: Partial<PlatformInfo> | null
  readonly chipIds: readonly Uint8Array[] | null
  readonly roots: SnpRoots
  readonly needsRevocationList: boolean
}

/**
 * SHA-256 of the DER of AMD's root certificates (ARK-Milan, ARK-Genoa, ARK-Turin). To check them:
 * fetch kdsintf.amd.com/vcek/v1/PRODUCT/cert_chain, and hash the DER of its second certificate.
 */
export const AMD_ROOTS: SnpRoots = {
  Milan: [decodeHex('69d063b45344d26a2e94e1f4210de49ef555308287d4c174445c95639a540bcd')],
  Genoa: [decodeHex('4c6598d19c18719c5dfd4a7d335f674e5bfe1d8f800cea2cf270c10d103db2f1')],
  Turin: [decodeHex('1f084161a44bb6d93778a904877d4819cafa5d05ef4193b2ded9dd9c73dd3f6a')],
}

/**
 * Sets the defaults. Checks the type of every member, because a wrong type could switch off a
 * check. Throws PolicyError.
 */
export function resolveSnpPolicy(given: SnpPolicy): ResolvedSnpPolicy {
  const policy = optionsOf(given, OPTIONS, 'the policy of a report')
  const { measurements, hostData, reportData, vmpl = 0, floors, roots = AMD_ROOTS } = policy
  const { needsRevocationList = true, needsCommitted = false, platform, chipIds } = policy
  if (measurements !== 'any') demandAllowlist('measurements', measurements, 48)
  if (hostData !== undefined) demandAllowlist('hostData', hostData, 32)
  demand(reportData === undefined || isBytesOf(reportData, 64), 'reportData of 64 bytes')
  demand([0, 1, 2, 3].includes(vmpl), 'vmpl to be 0, 1, 2 or 3')
  demand(typeof needsCommitted === 'boolean', 'needsCommitted to be true or false')
  demand(platform === undefined || isPlatform(platform), 'platform to be one or more of its bits')
  if (chipIds !== undefined) demandAllowlist('chipIds', chipIds, 64)
  demand(!chipIds?.some(isZero), 'chipIds without zeros, which stand for a masked id')
  demandByProduct('floors', floors ?? {}, isFloor)
  demandByProduct('roots', roots, (value) => isListOf(value, (root) => isBytesOf(root, 32)))
  demand(typeof needsRevocationList === 'boolean', 'needsRevocationList to be true or false')
  return {
    measurements: measurements === 'any' ? null : measurements,
    hostData: hostData ?? null,
    reportData: reportData ?? null,
    vmpl,
    floors: floors ?? null,
    needsCommitted,
    platform: platform ?? null,
    chipIds: chipIds ?? null,
    roots,
    needsRevocationList,
  }
}

const OPTIONS: Readonly<Record<keyof SnpPolicy, true>> = {
  measurements: true,
  hostData: true,
  reportData: true,
  vmpl: true,
  floors: true,
  needsCommitted: true,
  platform: true,
  chipIds: true,
  roots: true,
  needsRevocationList: true,
}

/** Refuses an empty list, because it probably comes from a failed lookup. */
function demandAllowlist(name: string, list: unknown, bytes: number): void {
  const isWhole = isListOf(list, (item) => isBytesOf(item, bytes)) && list.length > 0
  demand(isWhole, `${name} to be one or more Uint8Arrays of ${bytes} bytes`)
}

function isPlatform(value: unknown): boolean {
  if (!hasOwnMembersAlone(value)) return false
  const bits = Object.entries(value)
  return (
    bits.length > 0 &&
    bits.every(
      ([name, bit]) => PLATFORM_BITS.some((one) => one === name) && typeof bit === 'boolean',
    )
  )
}

function demandByProduct(
  name: string,
  value: unknown,
  isValid: (item: unknown, product: SnpProduct) => boolean,
): void {
  const products: ReadonlySet<string> = new Set(SNP_PRODUCTS)
  const isWhole =
    hasOwnMembersAlone(value) &&
    Object.keys(value).every((key) => products.has(key)) &&
    SNP_PRODUCTS.every((product) => {
      return !Object.hasOwn(value, product) || isValid(Reflect.get(value, product), product)
    })
  demand(isWhole, `${name} by the products ${SNP_PRODUCTS.join(', ')}`)
}

/** Every part of the product must have a value, because a missing part would not be checked. */
function isFloor(value: unknown, product: SnpProduct): boolean {
  if (!hasOwnMembersAlone(value)) return false
  const parts = Object.keys(TCB_LAYOUTS[product])
  return (
    Object.keys(value).length === parts.length &&
    parts.every((part) => Object.hasOwn(value, part) && isByte(Reflect.get(value, part)))
  )
}

function isByte(value: unknown): boolean {
  return typeof value === 'number' && Number.isInteger(value) && value >= 0 && value <= 0xff
}
