import { type KeyObject, randomBytes, randomUUID } from 'node:crypto'
import { developmentName, encodeName, generateKey } from '../x509/certificate-builder.ts'
import {
  CERTIFICATE_PROFILES,
  type CertificateRole,
  type Issuer,
  issueCertificate,
  keyIdOf,
} from './certificate.ts'
import { type DevelopmentRoot, ROOT_LEFT_SECONDS, SoftwareNsmError } from './development-root.ts'

export type SigningChain = {
  /** Leaf, DER. */
  readonly certificate: Uint8Array
  /** DER. The root is first, the issuer of the leaf last. */
  readonly cabundle: readonly Uint8Array[]
  readonly privateKey: KeyObject
}

export type ModuleIdentity = {
  /** `i-` and 17 hex digits. */
  readonly instanceId: string
  /** 6 bytes of the enclave's start time (Unix milliseconds), and 2 random bytes. */
  readonly enclaveId: Uint8Array
}

/** The module's name in documents, `i-…-enc…`. */
export function moduleIdOf({ instanceId, enclaveId }: ModuleIdentity): string {
  return `${instanceId}-enc${Buffer.from(enclaveId).toString('hex')}`
}

/**
 * Returns a function that returns the chain for a time, Unix milliseconds. Certificates are issued
 * again when half of their life is over, or when the time is before their issue. Throws
 * SoftwareNsmError `invalid_root` when the root is about to expire.
 */
export function createCertificateChain(
  root: DevelopmentRoot,
  identity: ModuleIdentity,
): (nowMs: number) => SigningChain {
  let authorities: Issued | null = null
  let leaf: Issued | null = null
  return (nowMs) => {
    const now = Math.floor(nowMs / 1000)
    if (root.notAfter - now < ROOT_LEFT_SECONDS)
      throw new SoftwareNsmError(
        'invalid_root',
        'the development root expires soon; remove it, then a new root is made',
      )
    if (authorities === null || isDue(authorities, now)) {
      authorities = issue(['regional', 'zonal', 'instance'], { issuer: root, identity, now })
      leaf = null
    }
    if (leaf === null || isDue(leaf, now))
      leaf = issue(['leaf'], { issuer: authorities.last, identity, now })
    const [certificate = new Uint8Array()] = leaf.certificates
    const cabundle = [root.certificate, ...authorities.certificates]
    return { certificate, cabundle, privateKey: leaf.last.privateKey }
  }
}

/**
 * Certificates that were issued together at `issuedAt`, Unix seconds. `role` is the role of the
 * last certificate, which has the shortest life.
 */
type Issued = {
  readonly certificates: readonly Uint8Array[]
  readonly last: Issuer
  readonly role: IssuedRole
  readonly issuedAt: number
}

function isDue({ role, issuedAt }: Issued, now: number): boolean {
  const { lifeSeconds, backdateSeconds } = CERTIFICATE_PROFILES[role]
  return now < issuedAt - backdateSeconds || now > issuedAt + lifeSeconds / 2
}

function issue(
  roles: readonly [IssuedRole, ...IssuedRole[]],
  order: { readonly issuer: Issuer; readonly identity: ModuleIdentity; readonly now: number },
): Issued {
  const { identity, now } = order
  const certificates: Uint8Array[] = []
  let last = order.issuer
  for (const role of roles) {
    const profile = CERTIFICATE_PROFILES[role]
    const { privateKey, publicKey } = generateKey()
    const name = NAMES[role](identity)
    const request = {
      profile,
      subject: name,
      publicKey,
      serial: SERIALS[role](identity, now),
      notBefore: now - profile.backdateSeconds,
      notAfter: now + profile.lifeSeconds,
      crlUri: `${CRL_ORIGIN}/crl/${randomUUID()}.crl`,
    }
    certificates.push(issueCertificate(request, last))
    last = { name, keyId: keyIdOf(publicKey), privateKey }
  }
  return { certificates, last, role: roles.at(-1) ?? roles[0], issuedAt: now }
}

type IssuedRole = Exclude<CertificateRole, 'root'>

/** Stands in place of AWS's region. No real region has this name. */
const REGION = 'dev-local-1'

/** Names below `.invalid` have no address (RFC 2606), so clients cannot fetch a CRL there. */
const CRL_ORIGIN = 'http://crl.affidavit.invalid'

/** The names have the order and form of AWS's names, but our organisation. */
const NAMES: Readonly<Record<IssuedRole, (identity: ModuleIdentity) => Uint8Array>> = {
  regional: () =>
    developmentName(`${randomBytes(8).toString('hex')}.${REGION}.affidavit.nitro-enclaves`),
  zonal: () =>
    encodeName(
      ['CN', `${randomBytes(8).toString('hex')}.zonal.${REGION}.affidavit.nitro-enclaves`],
      ['OU', 'Development'],
      ['O', 'Affidavit'],
      ['C', 'US'],
      ['ST', 'WA'],
      ['L', 'Seattle'],
    ),
  instance: ({ instanceId }) => instanceName(`${instanceId}.${REGION}.affidavit.nitro-enclaves`),
  leaf: (identity) => instanceName(`${moduleIdOf(identity)}.${REGION}.affidavit`),
}

function instanceName(commonName: string): Uint8Array {
  return encodeName(
    ['C', 'US'],
    ['ST', 'Washington'],
    ['L', 'Seattle'],
    ['O', 'Affidavit'],
    ['OU', 'Development'],
    ['CN', commonName],
  )
}

/**
 * Serial numbers are random. The leaf's serial is the enclave id and the time of issue (Unix
 * seconds), as in AWS's leaves.
 */
const SERIALS: Readonly<Record<IssuedRole, (identity: ModuleIdentity, now: number) => Uint8Array>> =
  {
    regional: () => randomBytes(16),
    zonal: () => randomBytes(16),
    instance: () => randomBytes(19),
    leaf: ({ enclaveId }, now) => {
      const seconds = Buffer.alloc(8)
      seconds.writeBigUInt64BE(BigInt(now))
      return Buffer.concat([enclaveId, seconds])
    },
  }
