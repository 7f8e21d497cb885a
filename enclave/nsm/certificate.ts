import { createHash, type KeyObject, sign } from 'node:crypto'
import type { CertificateExtension, CertificateProfile } from './certificate-profiles.ts'
import {
  derBitString,
  derBoolean,
  derContext,
  derContextPrimitive,
  derInteger,
  derObjectIdentifier,
  derOctetString,
  derPrintableString,
  derSequence,
  derSet,
  derTime,
  derUtf8String,
} from './der.ts'

/** One attribute of a distinguished name: `['CN', 'aws.nitro-enclaves']`. Order is kept. */
export type NameAttribute = readonly [type: keyof typeof ATTRIBUTE_TYPES, value: string]

/** Who signs: the issuer's name, key and (for the authority key identifier) key id. */
export type Issuer = {
  readonly name: Uint8Array
  readonly keyId: Uint8Array
  readonly privateKey: KeyObject
}

export type CertificateRequest = {
  readonly profile: CertificateProfile
  /** DER Name. */
  readonly subject: Uint8Array
  /** P-384. */
  readonly publicKey: KeyObject
  /** Big-endian, positive. */
  readonly serial: Uint8Array
  /** Unix seconds, both inclusive. */
  readonly notBefore: number
  readonly notAfter: number
  /** The one URI of the CRL distribution points, where the profile has them. */
  readonly crlUri: string
}

/** Gives the DER of a v3 certificate over a P-384 key, signed with ecdsa-with-SHA384 (RFC 5280, RFC 5758). */
export function issueCertificate(request: CertificateRequest, issuer: Issuer): Uint8Array {
  const tbs = derSequence(
    derContext(0, derInteger(Uint8Array.of(2))),
    derInteger(request.serial),
    ECDSA_WITH_SHA384,
    issuer.name,
    derSequence(derTime(request.notBefore), derTime(request.notAfter)),
    request.subject,
    request.publicKey.export({ type: 'spki', format: 'der' }),
    derContext(3, derSequence(...encodeExtensions(request, issuer.keyId))),
  )
  const signature = sign('sha384', tbs, { key: issuer.privateKey, dsaEncoding: 'der' })
  return derSequence(tbs, ECDSA_WITH_SHA384, derBitString(signature))
}

/** Gives a DER Name: country printable, everything else UTF-8, as AWS writes them. */
export function encodeName(attributes: readonly NameAttribute[]): Uint8Array {
  return derSequence(
    ...attributes.map(([type, value]) =>
      derSet(
        derSequence(
          derObjectIdentifier(ATTRIBUTE_TYPES[type]),
          type === 'C' ? derPrintableString(value) : derUtf8String(value),
        ),
      ),
    ),
  )
}

/** Gives the 20-byte key identifier: SHA-1 over the public point (RFC 5280, 4.2.1.2, method 1). */
export function keyIdOf(publicKey: KeyObject): Uint8Array {
  const spki = publicKey.export({ type: 'spki', format: 'der' })
  return createHash('sha1').update(spki.subarray(-P384_POINT_BYTES)).digest()
}

const P384_POINT_BYTES = 97

const ATTRIBUTE_TYPES = {
  CN: '2.5.4.3',
  C: '2.5.4.6',
  L: '2.5.4.7',
  ST: '2.5.4.8',
  O: '2.5.4.10',
  OU: '2.5.4.11',
} as const

const ECDSA_WITH_SHA384 = derSequence(derObjectIdentifier('1.2.840.10045.4.3.3'))

function encodeExtensions(request: CertificateRequest, issuerKeyId: Uint8Array): readonly Uint8Array[] {
  return request.profile.extensions.map((kind) => encodeExtensionOf(kind, request, issuerKeyId))
}

function encodeExtensionOf(
  kind: CertificateExtension,
  { profile, publicKey, crlUri }: CertificateRequest,
  issuerKeyId: Uint8Array,
): Uint8Array {
  switch (kind) {
    case 'basicConstraints':
      return encodeExtension('2.5.29.19', true, encodeBasicConstraints(profile))
    case 'keyUsage':
      return encodeExtension('2.5.29.15', profile.keyUsageCritical, encodeKeyUsage(profile.keyUsage))
    case 'subjectKeyIdentifier':
      return encodeExtension('2.5.29.14', false, derOctetString(keyIdOf(publicKey)))
    case 'authorityKeyIdentifier':
      return encodeExtension('2.5.29.35', false, derSequence(derContextPrimitive(0, issuerKeyId)))
    case 'crlDistributionPoints':
      return encodeExtension('2.5.29.31', false, encodeDistributionPoint(crlUri))
  }
}

function encodeExtension(identifier: string, critical: boolean, value: Uint8Array): Uint8Array {
  return derSequence(
    derObjectIdentifier(identifier),
    ...(critical ? [derBoolean(true)] : []),
    derOctetString(value),
  )
}

/** DER leaves out defaults: cA FALSE is an empty sequence. */
function encodeBasicConstraints({ ca, pathLength }: CertificateProfile): Uint8Array {
  if (!ca) return derSequence()
  return derSequence(
    derBoolean(true),
    ...(pathLength === null ? [] : [derInteger(Uint8Array.of(pathLength))]),
  )
}

/** Bit numbers of RFC 5280, 4.2.1.3. */
const KEY_USAGE_BITS = { digitalSignature: 0, nonRepudiation: 1, keyCertSign: 5, cRLSign: 6 } as const

function encodeKeyUsage(usages: CertificateProfile['keyUsage']): Uint8Array {
  const bits = usages.map((usage) => KEY_USAGE_BITS[usage])
  const byte = bits.reduce<number>((sum, bit) => sum | (0x80 >> bit), 0)
  return derBitString(Uint8Array.of(byte), 7 - Math.max(...bits))
}

/** CRLDistributionPoints with one point, one full name, one URI (RFC 5280, 4.2.1.13). */
function encodeDistributionPoint(uri: string): Uint8Array {
  const fullName = derContext(0, derContextPrimitive(6, Buffer.from(uri, 'ascii')))
  return derSequence(derSequence(derContext(0, fullName)))
}
