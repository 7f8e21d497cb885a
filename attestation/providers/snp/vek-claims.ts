import { DER_TAGS, latin1 } from '../../nitro/der.ts'
import { tryDecodeDer } from '../try-decode-der.ts'
import { refuseReport, type SnpCode } from './snp-rules.ts'
import { SNP_PRODUCTS, type SnpProduct, TCB_LAYOUTS, type TcbVersion } from './tcb.ts'

/** Object identifier of AMD's extensions. Their values are DER, except the hardware id. */
const AMD_ARC = '1.3.6.1.4.1.3704.1.'
const PRODUCT = `${AMD_ARC}2`
const HARDWARE_ID = `${AMD_ARC}4`
const PROVIDER = `${AMD_ARC}5`
const TCB_PART_TYPES: Readonly<Record<keyof TcbVersion, string>> = {
  bootloader: `${AMD_ARC}3.1`,
  tee: `${AMD_ARC}3.2`,
  snp: `${AMD_ARC}3.3`,
  microcode: `${AMD_ARC}3.8`,
  fmc: `${AMD_ARC}3.9`,
}

export function isAmdExtension(type: string): boolean {
  return type.startsWith(AMD_ARC)
}

/** The values of AMD's extensions, by object identifier (AMD 57230, section 3.1). */
type Values = ReadonlyMap<string, Uint8Array<ArrayBuffer>>

/** Rule 13. `Milan-B0` is a stepping of Milan. Throws ProviderEvidenceError. */
export function productOfVek(values: Values): SnpProduct {
  const value = values.get(PRODUCT)
  if (value === undefined)
    throw refuseReport('product_malformed', 'expected a certificate with a product name')
  const [name] = textOf(value, 'product_malformed', 'the product name').split('-')
  const product = SNP_PRODUCTS.find((one) => one === name)
  if (product === undefined)
    throw refuseReport('product_unknown', 'expected a certificate of Milan, Genoa or Turin')
  return product
}

/** Rule 13: the cloud provider of a VLEK. Null for a VCEK. Throws ProviderEvidenceError. */
export function providerOfVek(values: Values): string | null {
  const value = values.get(PROVIDER)
  return value === undefined ? null : textOf(value, 'provider_extension', 'CSP_ID')
}

/** Rule 14: reads exactly the parts of the product. Throws ProviderEvidenceError. */
export function tcbOfVek(values: Values, product: SnpProduct): TcbVersion {
  const layout = TCB_LAYOUTS[product]
  if (layout.fmc === undefined && values.has(TCB_PART_TYPES.fmc))
    throw refuseReport('tcb_extension', `expected no fmc in a certificate of ${product}`)
  const partOf = (part: keyof TcbVersion) => byteOf(values.get(TCB_PART_TYPES[part]), part)
  return {
    ...(layout.fmc === undefined ? {} : { fmc: partOf('fmc') }),
    bootloader: partOf('bootloader'),
    tee: partOf('tee'),
    snp: partOf('snp'),
    microcode: partOf('microcode'),
  }
}

/** An INTEGER from 0 to 255. DER writes 128 and more as two bytes. */
function byteOf(value: Uint8Array<ArrayBuffer> | undefined, part: string): number {
  const node = value === undefined ? null : tryDecodeDer(value)
  const digits = node?.tag === DER_TAGS.integer ? node.content : new Uint8Array()
  const isByte = digits.length === 1 || (digits.length === 2 && digits[0] === 0)
  if (!isByte || ((digits[0] ?? 0) & 0x80) !== 0)
    throw refuseReport('tcb_extension', `expected ${part} in the certificate, from 0 to 255`)
  return digits.at(-1) ?? 0
}

/**
 * Rule 15: the first 8 bytes of the chip's id for Turin, all 64 for other products. Null if the
 * certificate has no hardware id. Throws ProviderEvidenceError.
 */
export function hardwareIdOfVek(values: Values, product: SnpProduct): Uint8Array | null {
  const value = values.get(HARDWARE_ID)
  if (value === undefined) return null
  const bytes = product === 'Turin' ? 8 : 64
  if (value.length !== bytes)
    throw refuseReport('chip_extension', `expected a hardware id of ${bytes} bytes`)
  return value
}

function textOf(value: Uint8Array<ArrayBuffer>, code: SnpCode, name: string): string {
  const node = tryDecodeDer(value)
  if (node?.tag !== DER_TAGS.ia5String)
    throw refuseReport(code, `expected ${name} of the certificate as IA5String`)
  return latin1(node.content)
}
