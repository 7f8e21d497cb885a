import { refuseReport } from './snp-rules.ts'

/** Each product has its own root, TCB layout and floors. */
export const SNP_PRODUCTS = ['Milan', 'Genoa', 'Turin'] as const

export type SnpProduct = (typeof SNP_PRODUCTS)[number]

/** Security versions of the firmware parts. Only Turin has `fmc`. */
export type TcbVersion = {
  readonly fmc?: number
  readonly bootloader: number
  readonly tee: number
  readonly snp: number
  readonly microcode: number
}

/** The index of each part's byte in the eight bytes of a TCB_VERSION. All other bytes are zero. */
export const TCB_LAYOUTS: Readonly<Record<SnpProduct, Readonly<Partial<TcbVersion>>>> = {
  Milan: { bootloader: 0, tee: 1, snp: 6, microcode: 7 },
  Genoa: { bootloader: 0, tee: 1, snp: 6, microcode: 7 },
  Turin: { fmc: 0, bootloader: 1, tee: 2, snp: 3, microcode: 7 },
}

/** Messages name the first part that differs, in this order. */
export const TCB_PARTS = ['fmc', 'bootloader', 'tee', 'snp', 'microcode'] as const

/** Rule 14: splits the eight bytes of a TCB_VERSION. Throws ProviderEvidenceError. */
export function decodeTcb(bytes: Uint8Array, product: SnpProduct): TcbVersion {
  const layout = TCB_LAYOUTS[product]
  const used = new Set(Object.values(layout))
  if (bytes.some((byte, index) => byte !== 0 && !used.has(index)))
    throw refuseReport('tcb_reserved', `expected zero in the reserved bytes of a ${product} TCB`)
  const partOf = (index = 0) => bytes[index] ?? 0
  return {
    ...(layout.fmc === undefined ? {} : { fmc: partOf(layout.fmc) }),
    bootloader: partOf(layout.bootloader),
    tee: partOf(layout.tee),
    snp: partOf(layout.snp),
    microcode: partOf(layout.microcode),
  }
}

/** Returns the first part of `tcb` that is below `floor`, or null. */
export function findBelow(tcb: TcbVersion, floor: TcbVersion): (typeof TCB_PARTS)[number] | null {
  return TCB_PARTS.find((part) => (tcb[part] ?? 0) < (floor[part] ?? 0)) ?? null
}

/** Rule 13. Reports have CPUID from version 3 on. Throws ProviderEvidenceError. */
export function productOfCpu({
  family,
  model,
}: {
  readonly family: number
  readonly model: number
}): SnpProduct {
  const found = CPU_MODELS.find(
    (range) => range.family === family && model >= range.first && model <= range.last,
  )
  if (found) return found.product
  throw refuseReport('product_unknown', 'expected the CPUID of a Milan, Genoa or Turin processor')
}

/** Bergamo and Siena (0xA0 to 0xAF) have Genoa's roots. */
const CPU_MODELS = [
  { family: 0x19, first: 0x00, last: 0x0f, product: 'Milan' },
  { family: 0x19, first: 0x10, last: 0x1f, product: 'Genoa' },
  { family: 0x19, first: 0xa0, last: 0xaf, product: 'Genoa' },
  { family: 0x1a, first: 0x00, last: 0x11, product: 'Turin' },
] as const
