import { createSign, generateKeyPairSync, type KeyObject } from 'node:crypto'
import {
  bitString,
  derBoolean,
  derInteger,
  encodeDer,
  objectIdentifier,
  octetString,
  printableString,
  sequence,
  set,
  time,
  utf8String,
} from './der-encoder.ts'

/** Every part of a certificate as DER. Nothing checks that the parts fit together. */
export type CertificateParts = {
  /** The [0] field, or null to leave it out. */
  readonly version: Uint8Array | null
  readonly serial: Uint8Array
  readonly innerAlgorithm: Uint8Array
  readonly issuer: Uint8Array
  readonly validity: Uint8Array
  readonly subject: Uint8Array
  readonly publicKey: Uint8Array
  /** Each an Extension; null leaves the [3] field out. */
  readonly extensions: readonly Uint8Array[] | null
  /** Fields after the extensions in the signed part. */
  readonly extraFields: readonly Uint8Array[]
  readonly outerAlgorithm: Uint8Array
  /** Makes the BIT STRING of the signature over the signed part. */
  readonly sign: (signed: Uint8Array) => Uint8Array
}

/** Gives the DER of the certificate with these parts. */
export function buildCertificate(parts: CertificateParts): Uint8Array<ArrayBuffer> {
  const fields = [
    ...(parts.version ? [parts.version] : []),
    parts.serial,
    parts.innerAlgorithm,
    parts.issuer,
    parts.validity,
    parts.subject,
    parts.publicKey,
    ...(parts.extensions ? [encodeDer(0xa3, sequence(...parts.extensions))] : []),
    ...parts.extraFields,
  ]
  const signed = sequence(...fields)
  return sequence(signed, parts.outerAlgorithm, parts.sign(signed))
}

export type SigningKey = { readonly privateKey: KeyObject; readonly publicKey: KeyObject }

export function generateKey(namedCurve = 'P-384'): SigningKey {
  return generateKeyPairSync('ec', { namedCurve })
}

/** SubjectPublicKeyInfo, as OpenSSL writes it. */
export function publicKeyInfo({ publicKey }: SigningKey): Uint8Array<ArrayBuffer> {
  return new Uint8Array(publicKey.export({ type: 'spki', format: 'der' }))
}

export function signWith(
  { privateKey }: SigningKey,
  hash = 'sha384',
): (signed: Uint8Array) => Uint8Array {
  return (signed) => bitString(createSign(hash).update(signed).sign(privateKey))
}

export const VERSION_3 = encodeDer(0xa0, derInteger(2))
export const ECDSA_SHA384 = sequence(objectIdentifier('1.2.840.10045.4.3.3'))

const DEVELOPMENT = { organisation: 'Affidavit', unit: 'Development' }

/** A name in the form of AWS's names. The default organisation makes no hardware. */
export function distinguishedName(
  commonName: string,
  { organisation, unit }: typeof DEVELOPMENT = DEVELOPMENT,
): Uint8Array<ArrayBuffer> {
  const attribute = (type: string, value: Uint8Array) =>
    set(sequence(objectIdentifier(type), value))
  return sequence(
    attribute('2.5.4.6', printableString('US')),
    attribute('2.5.4.10', utf8String(organisation)),
    attribute('2.5.4.11', utf8String(unit)),
    attribute('2.5.4.3', utf8String(commonName)),
  )
}

export function validityOf(notBefore: Date, notAfter: Date): Uint8Array<ArrayBuffer> {
  return sequence(time(notBefore), time(notAfter))
}

export function extension(
  type: string,
  { critical, value }: { readonly critical: boolean; readonly value: Uint8Array },
): Uint8Array<ArrayBuffer> {
  return sequence(
    objectIdentifier(type),
    ...(critical ? [derBoolean(true)] : []),
    octetString(value),
  )
}

/** basicConstraints of a CA; `pathLength` null leaves it out. */
export function authorityConstraints(
  pathLength: number | null,
  critical = true,
): Uint8Array<ArrayBuffer> {
  const length = pathLength === null ? [] : [derInteger(pathLength)]
  return extension('2.5.29.19', { critical, value: sequence(derBoolean(true), ...length) })
}

export function leafConstraints(): Uint8Array<ArrayBuffer> {
  return extension('2.5.29.19', { critical: true, value: sequence() })
}

/** keyUsage from its first byte, without trailing zero bits. */
export function keyUsage(bits: number, critical = true): Uint8Array<ArrayBuffer> {
  const unused = Math.clz32(bits & -bits) === 32 ? 0 : 31 - Math.clz32(bits & -bits)
  return extension('2.5.29.15', { critical, value: bitString(Uint8Array.of(bits), unused) })
}

export const KEY_USAGE_BITS = {
  digitalSignature: 0x80,
  nonRepudiation: 0x40,
  keyCertSign: 0x04,
  cRLSign: 0x02,
} as const
