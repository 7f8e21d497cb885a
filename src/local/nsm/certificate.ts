import { createHash, type KeyObject, sign } from 'node:crypto'
import {
  BitString,
  Integer,
  ObjectIdentifier,
  OctetString,
  PrintableString,
  Sequence,
  Set as SetOf,
  Utf8String,
} from 'asn1js'
import {
  AlgorithmIdentifier,
  AuthorityKeyIdentifier,
  BasicConstraints,
  Certificate,
  CRLDistributionPoints,
  DistributionPoint,
  Extension,
  GeneralName,
  PublicKeyInfo,
  RelativeDistinguishedNames,
  Time,
} from 'pkijs'

/**
 * The five certificates of a Nitro attestation document, root first, read off AWS's own (facts:
 * life, constraints, key usage and which extensions stand in which order). A validator that accepts
 * AWS's profile accepts these.
 */
export const CERTIFICATE_ROLES = ['root', 'regional', 'zonal', 'instance', 'leaf'] as const

export type CertificateRole = (typeof CERTIFICATE_ROLES)[number]

type CertificateProfile = {
  /** From issue to notAfter, seconds. */
  readonly lifeSeconds: number
  /** From notBefore to issue, seconds: a verifier's clock may be this much behind ours. */
  readonly backdateSeconds: number
  /**
   * Reissued when less than this is left. More than the life of what it signs, so that chains stay
   * nested.
   */
  readonly renewSeconds: number
  readonly ca: boolean
  readonly pathLength: number | null
  readonly keyUsage: readonly ('digitalSignature' | 'nonRepudiation' | 'keyCertSign' | 'cRLSign')[]
  readonly keyUsageCritical: boolean
  readonly extensions: readonly CertificateExtension[]
}

type CertificateExtension =
  | 'basicConstraints'
  | 'authorityKeyIdentifier'
  | 'subjectKeyIdentifier'
  | 'keyUsage'
  | 'crlDistributionPoints'

const HOUR = 3600
const DAY = 24 * HOUR

const AUTHORITY_USAGE = ['digitalSignature', 'keyCertSign', 'cRLSign'] as const
const AUTHORITY_EXTENSIONS = [
  'basicConstraints',
  'authorityKeyIdentifier',
  'subjectKeyIdentifier',
  'keyUsage',
  'crlDistributionPoints',
] as const

/** By role. The root is never renewed: its file is what verifiers were given. */
export const CERTIFICATE_PROFILES: Readonly<Record<CertificateRole, CertificateProfile>> = {
  root: {
    // 30 years with 8 leap days.
    lifeSeconds: (30 * 365 + 8) * DAY,
    backdateSeconds: HOUR,
    renewSeconds: 20 * DAY + HOUR,
    ca: true,
    pathLength: null,
    keyUsage: AUTHORITY_USAGE,
    keyUsageCritical: true,
    extensions: ['basicConstraints', 'subjectKeyIdentifier', 'keyUsage'],
  },
  regional: {
    lifeSeconds: 20 * DAY,
    backdateSeconds: HOUR,
    renewSeconds: 8 * DAY,
    ca: true,
    pathLength: 2,
    keyUsage: AUTHORITY_USAGE,
    keyUsageCritical: true,
    extensions: AUTHORITY_EXTENSIONS,
  },
  zonal: {
    lifeSeconds: 6 * DAY,
    backdateSeconds: HOUR,
    renewSeconds: 2 * DAY,
    ca: true,
    pathLength: 1,
    keyUsage: AUTHORITY_USAGE,
    keyUsageCritical: true,
    extensions: AUTHORITY_EXTENSIONS,
  },
  instance: {
    lifeSeconds: DAY - HOUR / 4,
    backdateSeconds: HOUR / 4,
    renewSeconds: 6 * HOUR,
    ca: true,
    pathLength: 0,
    keyUsage: ['keyCertSign'],
    keyUsageCritical: true,
    extensions: ['basicConstraints', 'keyUsage', 'subjectKeyIdentifier', 'authorityKeyIdentifier'],
  },
  leaf: {
    lifeSeconds: 3 * HOUR,
    backdateSeconds: 3,
    renewSeconds: 1.5 * HOUR,
    ca: false,
    pathLength: null,
    keyUsage: ['digitalSignature', 'nonRepudiation'],
    keyUsageCritical: false,
    extensions: ['basicConstraints', 'keyUsage'],
  },
}

/** One attribute of a distinguished name: `['CN', 'aws.nitro-enclaves']`. Order is kept. */
export type NameAttribute = readonly [type: keyof typeof ATTRIBUTE_TYPES, value: string]

/** Who signs: the issuer's name (DER), key and (for the authority key identifier) key id. */
export type Issuer = {
  readonly name: Uint8Array
  readonly keyId: Uint8Array
  readonly privateKey: KeyObject
}

type CertificateRequest = {
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

/**
 * Gives the DER of a v3 certificate over a P-384 key, signed with ecdsa-with-SHA384 (RFC 5280, RFC
 * 5758).
 */
export function issueCertificate(request: CertificateRequest, issuer: Issuer): Uint8Array {
  const algorithm = new AlgorithmIdentifier({ algorithmId: ECDSA_WITH_SHA384 })
  const certificate = new Certificate({
    version: 2,
    serialNumber: encodeSerial(request.serial),
    signature: algorithm,
    issuer: RelativeDistinguishedNames.fromBER(new Uint8Array(issuer.name)),
    notBefore: encodeTime(request.notBefore),
    notAfter: encodeTime(request.notAfter),
    subject: RelativeDistinguishedNames.fromBER(new Uint8Array(request.subject)),
    subjectPublicKeyInfo: PublicKeyInfo.fromBER(new Uint8Array(exportSpki(request.publicKey))),
    extensions: request.profile.extensions.map((kind) => extensionOf(kind, request, issuer.keyId)),
    signatureAlgorithm: algorithm,
  })
  const toBeSigned = new Uint8Array(certificate.encodeTBS().toBER())
  const signature = sign('sha384', toBeSigned, { key: issuer.privateKey, dsaEncoding: 'der' })
  certificate.signatureValue = new BitString({ valueHex: new Uint8Array(signature).buffer })
  return new Uint8Array(certificate.toSchema(true).toBER())
}

/**
 * Gives a DER Name, one attribute in each set: country printable, everything else UTF-8, as AWS
 * writes them.
 */
export function encodeName(attributes: readonly NameAttribute[]): Uint8Array {
  const sets = attributes.map(([type, value]) => {
    const text = type === 'C' ? new PrintableString({ value }) : new Utf8String({ value })
    const attribute = new Sequence({
      value: [new ObjectIdentifier({ value: ATTRIBUTE_TYPES[type] }), text],
    })
    return new SetOf({ value: [attribute] })
  })
  return new Uint8Array(new Sequence({ value: sets }).toBER())
}

/** Gives the 20-byte key identifier: SHA-1 over the public point (RFC 5280, 4.2.1.2, method 1). */
export function keyIdOf(publicKey: KeyObject): Uint8Array {
  return createHash('sha1').update(exportSpki(publicKey).subarray(-P384_POINT_BYTES)).digest()
}

const P384_POINT_BYTES = 97
const ECDSA_WITH_SHA384 = '1.2.840.10045.4.3.3'

const ATTRIBUTE_TYPES = {
  CN: '2.5.4.3',
  C: '2.5.4.6',
  L: '2.5.4.7',
  ST: '2.5.4.8',
  O: '2.5.4.10',
  OU: '2.5.4.11',
} as const

function exportSpki(publicKey: KeyObject): Buffer {
  return publicKey.export({ type: 'spki', format: 'der' })
}

/** A zero byte before a first byte that would make the number negative (X.690, 8.3). */
function encodeSerial(bytes: Uint8Array): Integer {
  const first = bytes.findIndex((byte) => byte !== 0)
  const significant = bytes.subarray(Math.max(0, first))
  const signed = (significant[0] ?? 0) >= 0x80 ? [0, ...significant] : significant
  return new Integer({ valueHex: Uint8Array.from(signed).buffer })
}

/** UTCTime through 2049, GeneralizedTime after (RFC 5280, 4.1.2.5). Unix seconds in. */
function encodeTime(unixSeconds: number): Time {
  const value = new Date(unixSeconds * 1000)
  return new Time({ type: value.getUTCFullYear() >= 2050 ? 1 : 0, value })
}

function extensionOf(
  kind: CertificateExtension,
  { profile, publicKey, crlUri }: CertificateRequest,
  issuerKeyId: Uint8Array,
): Extension {
  switch (kind) {
    case 'basicConstraints':
      return encodeExtension('2.5.29.19', basicConstraintsOf(profile), true)
    case 'keyUsage':
      return encodeExtension('2.5.29.15', keyUsageOf(profile.keyUsage), profile.keyUsageCritical)
    case 'subjectKeyIdentifier':
      return encodeExtension('2.5.29.14', octets(keyIdOf(publicKey)))
    case 'authorityKeyIdentifier': {
      const identifier = new AuthorityKeyIdentifier({ keyIdentifier: octets(issuerKeyId) })
      return encodeExtension('2.5.29.35', identifier.toSchema())
    }
    case 'crlDistributionPoints': {
      const uri = new GeneralName({ type: GENERAL_NAME_URI, value: crlUri })
      const point = new DistributionPoint({ distributionPoint: [uri] })
      const points = new CRLDistributionPoints({ distributionPoints: [point] })
      return encodeExtension('2.5.29.31', points.toSchema())
    }
  }
}

/** uniformResourceIdentifier (RFC 5280, 4.2.1.6). */
const GENERAL_NAME_URI = 6

function encodeExtension(
  extnID: string,
  value: { toBER(): ArrayBuffer },
  critical = false,
): Extension {
  return new Extension({ extnID, critical, extnValue: value.toBER() })
}

function octets(bytes: Uint8Array): OctetString {
  return new OctetString({ valueHex: new Uint8Array(bytes).buffer })
}

function basicConstraintsOf({ ca, pathLength }: CertificateProfile): Sequence {
  const length = pathLength === null ? {} : { pathLenConstraint: pathLength }
  return new BasicConstraints({ cA: ca, ...length }).toSchema()
}

/** Bit numbers of RFC 5280, 4.2.1.3. */
const KEY_USAGE_BITS = {
  digitalSignature: 0,
  nonRepudiation: 1,
  keyCertSign: 5,
  cRLSign: 6,
} as const

function keyUsageOf(usages: CertificateProfile['keyUsage']): BitString {
  const bits = usages.map((usage) => KEY_USAGE_BITS[usage])
  const byte = bits.reduce<number>((sum, bit) => sum | (0x80 >> bit), 0)
  return new BitString({ valueHex: Uint8Array.of(byte).buffer, unusedBits: 7 - Math.max(...bits) })
}
