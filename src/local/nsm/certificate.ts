import { createHash, type KeyObject, sign } from 'node:crypto'
import {
  BitString,
  Integer,
  OctetString,
  PrintableString,
  Sequence,
  Set as SetOf,
  Utf8String,
} from 'asn1js'
import {
  AlgorithmIdentifier,
  AttributeTypeAndValue,
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
 * The five certificates of a Nitro attestation document, root first. They copy the life,
 * constraints, key usage and order of extensions of AWS's certificates. A validator for AWS's
 * profile accepts them.
 */
export const CERTIFICATE_ROLES = ['root', 'regional', 'zonal', 'instance', 'leaf'] as const

export type CertificateRole = (typeof CERTIFICATE_ROLES)[number]

type CertificateProfile = {
  /** From issue to notAfter, seconds. */
  readonly lifeSeconds: number
  /**
   * From notBefore to issue, seconds. A verifier's clock may be this much behind the issuer's
   * clock.
   */
  readonly backdateSeconds: number
  readonly ca: boolean
  readonly pathLength: number | null
  readonly keyUsage: readonly (keyof typeof KEY_USAGE_BITS)[]
  readonly extensions: readonly (keyof typeof EXTENSIONS)[]
}

const HOUR = 3600
const DAY = 24 * HOUR

const AUTHORITY = {
  backdateSeconds: HOUR,
  ca: true,
  keyUsage: ['digitalSignature', 'keyCertSign', 'cRLSign'],
  extensions: [
    'basicConstraints',
    'authorityKeyIdentifier',
    'subjectKeyIdentifier',
    'keyUsage',
    'crlDistributionPoints',
  ],
} as const

/**
 * The profile of each role. The root is never renewed, because verifiers keep a copy of its
 * certificate.
 */
export const CERTIFICATE_PROFILES: Readonly<Record<CertificateRole, CertificateProfile>> = {
  root: {
    ...AUTHORITY,
    // 30 years, including 8 leap days.
    lifeSeconds: (30 * 365 + 8) * DAY,
    pathLength: null,
    extensions: ['basicConstraints', 'subjectKeyIdentifier', 'keyUsage'],
  },
  regional: { ...AUTHORITY, lifeSeconds: 20 * DAY, pathLength: 2 },
  zonal: { ...AUTHORITY, lifeSeconds: 6 * DAY, pathLength: 1 },
  instance: {
    lifeSeconds: DAY - HOUR / 4,
    backdateSeconds: HOUR / 4,
    ca: true,
    pathLength: 0,
    keyUsage: ['keyCertSign'],
    extensions: ['basicConstraints', 'keyUsage', 'subjectKeyIdentifier', 'authorityKeyIdentifier'],
  },
  leaf: {
    lifeSeconds: 3 * HOUR,
    backdateSeconds: 3,
    ca: false,
    pathLength: null,
    keyUsage: ['digitalSignature', 'nonRepudiation'],
    extensions: ['basicConstraints', 'keyUsage'],
  },
}

/**
 * One attribute of a distinguished name: `['CN', 'aws.nitro-enclaves']`. The order of attributes is
 * kept.
 */
export type NameAttribute = readonly [type: keyof typeof ATTRIBUTE_TYPES, value: string]

/**
 * The issuer of a certificate: its name (DER), its key, and its key id (for the authority key
 * identifier).
 */
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
  /** The only URI in the CRL distribution points, for a profile that has this extension. */
  readonly crlUri: string
}

/**
 * Returns the DER of a v3 certificate for a P-384 key, signed with ecdsa-with-SHA384 (RFC 5280, RFC
 * 5758).
 */
export function issueCertificate(request: CertificateRequest, issuer: Issuer): Uint8Array {
  const { profile } = request
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
    extensions: profile.extensions.map((kind) => {
      const { oid, encode } = EXTENSIONS[kind]
      const critical = kind === 'basicConstraints' || (kind === 'keyUsage' && profile.ca)
      return new Extension({ extnID: oid, critical, extnValue: encode(request, issuer).toBER() })
    }),
    signatureAlgorithm: algorithm,
  })
  const toBeSigned = new Uint8Array(certificate.encodeTBS().toBER())
  const signature = sign('sha384', toBeSigned, { key: issuer.privateKey, dsaEncoding: 'der' })
  certificate.signatureValue = new BitString({ valueHex: new Uint8Array(signature).buffer })
  return new Uint8Array(certificate.toSchema(true).toBER())
}

/**
 * Returns a DER Name with one attribute in each set. As in AWS's certificates, the country is a
 * PrintableString and all other attributes are UTF-8 strings.
 */
export function encodeName(attributes: readonly NameAttribute[]): Uint8Array {
  const sets = attributes.map(([type, text]) => {
    const value =
      type === 'C' ? new PrintableString({ value: text }) : new Utf8String({ value: text })
    const attribute = new AttributeTypeAndValue({ type: ATTRIBUTE_TYPES[type], value })
    return new SetOf({ value: [attribute.toSchema()] })
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

/** Adds a zero byte when the first byte would make the number negative (X.690, 8.3). */
function encodeSerial(bytes: Uint8Array): Integer {
  const first = bytes.findIndex((byte) => byte !== 0)
  const significant = bytes.subarray(Math.max(0, first))
  const signed = (significant[0] ?? 0) >= 0x80 ? [0, ...significant] : significant
  return new Integer({ valueHex: Uint8Array.from(signed).buffer })
}

/**
 * Encodes Unix seconds as UTCTime up to the year 2049, and later as GeneralizedTime (RFC 5280,
 * 4.1.2.5).
 */
function encodeTime(unixSeconds: number): Time {
  const value = new Date(unixSeconds * 1000)
  return new Time({ type: value.getUTCFullYear() >= 2050 ? 1 : 0, value })
}

type ExtensionForm = {
  readonly oid: string
  readonly encode: (
    request: CertificateRequest,
    issuer: Issuer,
  ) => BitString | OctetString | Sequence
}

/** RFC 5280, 4.2.1. */
const EXTENSIONS = {
  basicConstraints: {
    oid: '2.5.29.19',
    encode: ({ profile: { ca, pathLength } }) => {
      const length = pathLength === null ? {} : { pathLenConstraint: pathLength }
      return new BasicConstraints({ cA: ca, ...length }).toSchema()
    },
  },
  keyUsage: {
    oid: '2.5.29.15',
    encode: ({ profile }) => encodeKeyUsage(profile.keyUsage),
  },
  subjectKeyIdentifier: {
    oid: '2.5.29.14',
    encode: ({ publicKey }) => octets(keyIdOf(publicKey)),
  },
  authorityKeyIdentifier: {
    oid: '2.5.29.35',
    encode: (_, { keyId }) =>
      new AuthorityKeyIdentifier({ keyIdentifier: octets(keyId) }).toSchema(),
  },
  crlDistributionPoints: {
    oid: '2.5.29.31',
    encode: ({ crlUri }) => {
      const uri = new GeneralName({ type: GENERAL_NAME_URI, value: crlUri })
      const point = new DistributionPoint({ distributionPoint: [uri] })
      return new CRLDistributionPoints({ distributionPoints: [point] }).toSchema()
    },
  },
} as const satisfies Readonly<Record<string, ExtensionForm>>

/** uniformResourceIdentifier (RFC 5280, 4.2.1.6). */
const GENERAL_NAME_URI = 6

function octets(bytes: Uint8Array): OctetString {
  return new OctetString({ valueHex: new Uint8Array(bytes).buffer })
}

/** Bit numbers of RFC 5280, 4.2.1.3. */
const KEY_USAGE_BITS = {
  digitalSignature: 0,
  nonRepudiation: 1,
  keyCertSign: 5,
  cRLSign: 6,
} as const

function encodeKeyUsage(usages: CertificateProfile['keyUsage']): BitString {
  const bits = usages.map((usage) => KEY_USAGE_BITS[usage])
  const byte = bits.reduce<number>((sum, bit) => sum | (0x80 >> bit), 0)
  return new BitString({ valueHex: Uint8Array.of(byte).buffer, unusedBits: 7 - Math.max(...bits) })
}
