/**
 * The five certificates of a Nitro attestation document, root first, read off AWS's own (facts: life, constraints,
 * key usage and which extensions stand in which order). A validator that accepts AWS's profile accepts these.
 */
export const CERTIFICATE_ROLES = ['root', 'regional', 'zonal', 'instance', 'leaf'] as const

export type CertificateRole = (typeof CERTIFICATE_ROLES)[number]

export type CertificateProfile = {
  /** From issue to notAfter, seconds. */
  readonly lifeSeconds: number
  /** From notBefore to issue, seconds: a verifier's clock may be this much behind ours. */
  readonly backdateSeconds: number
  /** Reissued when less than this is left. More than the life of what it signs, so that chains stay nested. */
  readonly renewSeconds: number
  readonly ca: boolean
  readonly pathLength: number | null
  readonly keyUsage: readonly ('digitalSignature' | 'nonRepudiation' | 'keyCertSign' | 'cRLSign')[]
  readonly keyUsageCritical: boolean
  readonly extensions: readonly CertificateExtension[]
}

export type CertificateExtension =
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
