import { decodeHex } from '../../bytes.ts'
import { isBytes } from '../../nitro/document.ts'
import { PolicyError } from '../../nitro/policy.ts'
import { hasOwnMembersAlone, ownMembers } from '../../own-members.ts'
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
   * The lowest accepted reported, committed and launch TCB, by product. Products without a floor
   * are then refused. Default: not checked.
   */
  readonly floors?: Readonly<Partial<Record<SnpProduct, TcbVersion>>>
  /** The trusted ARKs. Default AMD_ROOTS. */
  readonly roots?: SnpRoots
}

/** A policy with its defaults. Null: not checked. */
export type ResolvedSnpPolicy = {
  readonly measurements: readonly Uint8Array[] | null
  readonly hostData: readonly Uint8Array[] | null
  readonly reportData: Uint8Array | null
  readonly vmpl: number
  readonly floors: NonNullable<SnpPolicy['floors']> | null
  readonly roots: SnpRoots
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
 * Returns the policy with its defaults. Checks every member, since a wrong value from JavaScript
 * would demand nothing. Throws PolicyError.
 */
export function resolveSnpPolicy(given: SnpPolicy): ResolvedSnpPolicy {
  if (!hasOwnMembersAlone(given)) throw new PolicyError('expected the policy as an object')
  const policy = ownMembers(given)
  for (const [name, value] of Object.entries(policy))
    if (!OPTIONS.has(name) || value === undefined || value === null)
      throw new PolicyError(`expected the options ${[...OPTIONS].join(', ')}, each with a value`)
  const { measurements, hostData, reportData, vmpl = 0, floors, roots = AMD_ROOTS } = policy
  if (measurements !== 'any') checkAllowlist('measurements', measurements, 48)
  if (hostData !== undefined) checkAllowlist('hostData', hostData, 32)
  if (reportData !== undefined && !isBytes(reportData, { bytesMin: 64, bytesMax: 64 }))
    throw new PolicyError('expected reportData as Uint8Array of 64 bytes')
  if (!(Number.isInteger(vmpl) && vmpl >= 0 && vmpl <= 3))
    throw new PolicyError('expected vmpl to be 0, 1, 2 or 3')
  checkByProduct('floors', floors ?? {}, isFloor)
  checkByProduct('roots', roots, isRoots)
  return {
    measurements: measurements === 'any' ? null : measurements,
    hostData: hostData ?? null,
    reportData: reportData ?? null,
    vmpl,
    floors: floors ?? null,
    roots,
  }
}

const OPTIONS: ReadonlySet<string> = new Set([
  'measurements',
  'hostData',
  'reportData',
  'vmpl',
  'floors',
  'roots',
] satisfies readonly (keyof SnpPolicy)[])

/** An empty list would accept nothing, and is more likely a lookup that failed. */
function checkAllowlist(name: string, list: unknown, bytes: number): void {
  const isList =
    Array.isArray(list) &&
    list.length > 0 &&
    Array.from(list).every((item) => isBytes(item, { bytesMin: bytes, bytesMax: bytes }))
  if (!isList)
    throw new PolicyError(`expected ${name} to be one or more Uint8Arrays of ${bytes} bytes`)
}

type ProductTest = (value: unknown, product: SnpProduct) => boolean

function checkByProduct(name: string, value: unknown, isValid: ProductTest): void {
  const isWhole =
    hasOwnMembersAlone(value) &&
    Object.entries(value).every(([key, item]) => {
      const product = SNP_PRODUCTS.find((known) => known === key)
      return product !== undefined && isValid(item, product)
    })
  if (!isWhole) throw new PolicyError(`expected ${name} by the products ${SNP_PRODUCTS.join(', ')}`)
}

/** Exactly the parts that the product has, each a byte: a part left out would demand nothing. */
function isFloor(value: unknown, product: SnpProduct): boolean {
  if (!hasOwnMembersAlone(value)) return false
  const parts = Object.keys(TCB_LAYOUTS[product])
  return (
    Object.keys(value).length === parts.length &&
    parts.every((part) => isByte(Reflect.get(value, part)))
  )
}

function isByte(value: unknown): boolean {
  return typeof value === 'number' && Number.isInteger(value) && value >= 0 && value <= 0xff
}

function isRoots(value: unknown): boolean {
  return (
    Array.isArray(value) &&
    Array.from(value).every((root) => isBytes(root, { bytesMin: 32, bytesMax: 32 }))
  )
}
