import { createHash, type KeyObject } from 'node:crypto'
import {
  authorityConstraints,
  buildCertificate,
  certificateParts,
  extension,
  KEY_USAGE_BITS,
  keyUsage,
  leafConstraints,
  publicKeyInfo,
} from '../x509/certificate-builder.ts'
import { encodeDer, octetString, sequence } from '../x509/der-encoder.ts'

/**
 * The certificates of a Nitro attestation document, root first. Life, constraints, key usage and
 * order of extensions are AWS's, so a validator for AWS's profile accepts them.
 */
export const CERTIFICATE_ROLES = ['root', 'regional', 'zonal', 'instance', 'leaf'] as const

export type CertificateRole = (typeof CERTIFICATE_ROLES)[number]

type CertificateProfile = {
  /** From issue to notAfter. */
  readonly lifeSeconds: number
  /** From notBefore to issue. A verifier's clock may be this much behind the issuer's. */
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

/** The root is never renewed, because verifiers keep a copy of its certificate. */
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

/** `name` is a DER Name. `keyId` is the value of the authority key identifier. */
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
  /** Used only in a profile with CRL distribution points. */
  readonly crlUri: string
}

/** DER (RFC 5280). */
export function issueCertificate(request: CertificateRequest, issuer: Issuer): Uint8Array {
  const { profile, publicKey, subject } = request
  const parts = certificateParts({
    serial: BigInt(`0x${Buffer.from(request.serial).toString('hex')}`),
    issuer: { name: issuer.name, key: issuer },
    life: { from: new Date(request.notBefore * 1000), to: new Date(request.notAfter * 1000) },
    subject,
    key: { publicKey },
    extensions: profile.extensions.map((kind) => EXTENSIONS[kind](request, issuer)),
  })
  return buildCertificate(parts)
}

/** SHA-1 over the public point, 20 bytes (RFC 5280, 4.2.1.2, method 1). */
export function keyIdOf(publicKey: KeyObject): Uint8Array {
  const point = publicKeyInfo({ publicKey }).subarray(-P384_POINT_BYTES)
  return createHash('sha1').update(point).digest()
}

const P384_POINT_BYTES = 97

/** Each function returns an Extension, DER (RFC 5280, 4.2.1). */
const EXTENSIONS = {
  basicConstraints: ({ profile: { ca, pathLength } }) =>
    ca ? authorityConstraints(pathLength) : leafConstraints(),
  keyUsage: ({ profile }) => {
    const bits = profile.keyUsage.reduce((sum, usage) => sum | KEY_USAGE_BITS[usage], 0)
    return keyUsage(bits, profile.ca)
  },
  subjectKeyIdentifier: ({ publicKey }) => uncritical('2.5.29.14', octetString(keyIdOf(publicKey))),
  authorityKeyIdentifier: (_, { keyId }) =>
    uncritical('2.5.29.35', sequence(encodeDer(0x80, keyId))),
  // One distribution point, whose full name is one URI.
  crlDistributionPoints: ({ crlUri }) => {
    const name = encodeDer(0xa0, encodeDer(0x86, Buffer.from(crlUri)))
    return uncritical('2.5.29.31', sequence(sequence(encodeDer(0xa0, name))))
  },
} as const satisfies Readonly<
  Record<string, (request: CertificateRequest, issuer: Issuer) => Uint8Array>
>

function uncritical(type: string, value: Uint8Array): Uint8Array {
  return extension(type, { critical: false, value })
}
