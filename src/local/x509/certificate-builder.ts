import { generateKeyPairSync, type KeyObject, sign } from 'node:crypto'
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
  /** Null: the certificate has no [0] field. */
  readonly version: Uint8Array | null
  readonly serial: Uint8Array
  readonly innerAlgorithm: Uint8Array
  readonly issuer: Uint8Array
  readonly validity: Uint8Array
  readonly subject: Uint8Array
  readonly publicKey: Uint8Array
  /** Each is an Extension. Null: the certificate has no [3] field. */
  readonly extensions: readonly Uint8Array[] | null
  /** These fields follow the extensions in the signed part. */
  readonly extraFields: readonly Uint8Array[]
  readonly outerAlgorithm: Uint8Array
  /** Returns a BIT STRING. */
  readonly sign: (signed: Uint8Array) => Uint8Array
}

export type Period = { readonly from: Date; readonly to: Date }

export type SigningKey = { readonly privateKey: KeyObject; readonly publicKey: KeyObject }

/** The signer of a certificate or a revocation list. `name` is a DER Name. */
export type Authority = {
  readonly name: Uint8Array
  readonly key: Pick<SigningKey, 'privateKey'>
}

/** A certificate of version 3. The issuer's key determines the algorithm. */
export function certificateParts(order: {
  readonly serial: bigint | number
  readonly issuer: Authority
  readonly life: Period
  /** DER Name. */
  readonly subject: Uint8Array
  readonly key: Pick<SigningKey, 'publicKey'>
  readonly extensions: readonly Uint8Array[]
}): CertificateParts & { readonly extensions: readonly Uint8Array[] } {
  const { serial, issuer, life, subject, key, extensions } = order
  return {
    version: VERSION_3,
    serial: derInteger(serial),
    issuer: issuer.name,
    validity: validityOf(life.from, life.to),
    subject,
    publicKey: publicKeyInfo(key),
    extensions,
    extraFields: [],
    ...signatureParts(issuer.key),
  }
}

export function signatureParts(key: Pick<SigningKey, 'privateKey'>) {
  const isP256 = key.privateKey.asymmetricKeyDetails?.namedCurve === 'prime256v1'
  const algorithm = isP256 ? ECDSA_SHA256 : ECDSA_SHA384
  return {
    innerAlgorithm: algorithm,
    outerAlgorithm: algorithm,
    sign: signWith(key, isP256 ? 'sha256' : 'sha384'),
  }
}

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

export type Certified = { readonly key: SigningKey; readonly certificate: Uint8Array<ArrayBuffer> }

/** A CA with a certificate that it signed itself. */
export function makeAuthority(name: Uint8Array, life: Period): Certified {
  const key = generateKey()
  const parts = certificateParts({
    serial: 1,
    issuer: { name, key },
    life,
    subject: name,
    key,
    extensions: [authorityConstraints(0), keyUsage(KEY_USAGE_BITS.keyCertSign)],
  })
  return { key, certificate: buildCertificate(parts) }
}

export function generateKey(namedCurve = 'P-384'): SigningKey {
  return generateKeyPairSync('ec', { namedCurve })
}

/** SubjectPublicKeyInfo, DER. */
export function publicKeyInfo({
  publicKey,
}: Pick<SigningKey, 'publicKey'>): Uint8Array<ArrayBuffer> {
  return new Uint8Array(publicKey.export({ type: 'spki', format: 'der' }))
}

export function signWith(
  { privateKey }: Pick<SigningKey, 'privateKey'>,
  hash = 'sha384',
): (signed: Uint8Array) => Uint8Array {
  return (signed) => bitString(sign(hash, signed, privateKey))
}

export const VERSION_3 = encodeDer(0xa0, derInteger(2))
/** RFC 5758, 3.2. */
export const ECDSA_SHA256 = sequence(objectIdentifier('1.2.840.10045.4.3.2'))
export const ECDSA_SHA384 = sequence(objectIdentifier('1.2.840.10045.4.3.3'))

const ATTRIBUTE_TYPES = {
  CN: '2.5.4.3',
  C: '2.5.4.6',
  L: '2.5.4.7',
  ST: '2.5.4.8',
  O: '2.5.4.10',
  OU: '2.5.4.11',
} as const

/** For example `['CN', 'aws.nitro-enclaves']`. */
type NameAttribute = readonly [type: keyof typeof ATTRIBUTE_TYPES, value: string]

/**
 * A DER Name with one attribute in each set. As in AWS's certificates, the country is a
 * PrintableString and all other attributes are UTF-8 strings.
 */
export function encodeName(...attributes: readonly NameAttribute[]): Uint8Array<ArrayBuffer> {
  const sets = attributes.map(([type, text]) => {
    const value = type === 'C' ? printableString(text) : utf8String(text)
    return set(sequence(objectIdentifier(ATTRIBUTE_TYPES[type]), value))
  })
  return sequence(...sets)
}

/** A name in the form of AWS's names, with our organisation. */
export function developmentName(commonName: string): Uint8Array<ArrayBuffer> {
  return encodeName(['C', 'US'], ['O', 'Affidavit'], ['OU', 'Development'], ['CN', commonName])
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

/** basicConstraints of a CA. `pathLength` null leaves that field out. */
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

/** keyUsage with `bits` as its first byte. Trailing zero bits are left out. */
export function keyUsage(bits: number, critical = true): Uint8Array<ArrayBuffer> {
  const unused = Math.clz32(bits & -bits) === 32 ? 0 : 31 - Math.clz32(bits & -bits)
  return extension('2.5.29.15', { critical, value: bitString(Uint8Array.of(bits), unused) })
}

/** The bits of the first byte of keyUsage (RFC 5280, 4.2.1.3). */
export const KEY_USAGE_BITS = {
  digitalSignature: 0x80,
  nonRepudiation: 0x40,
  keyCertSign: 0x04,
  cRLSign: 0x02,
} as const

export function toPem(...ders: readonly Uint8Array[]): string {
  const blocks = ders.map((der) => {
    const lines = Buffer.from(der)
      .toString('base64')
      .replace(/.{64}(?=.)/g, '$&\n')
    return `-----BEGIN CERTIFICATE-----\n${lines}\n-----END CERTIFICATE-----\n`
  })
  return blocks.join('')
}
