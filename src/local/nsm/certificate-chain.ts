import { generateKeyPairSync, type KeyObject, randomBytes, randomUUID } from 'node:crypto'
import {
  CERTIFICATE_PROFILES,
  CERTIFICATE_ROLES,
  type CertificateRole,
  encodeName,
  type Issuer,
  issueCertificate,
  keyIdOf,
  type NameAttribute,
} from './certificate.ts'
import { type DevelopmentRoot, SoftwareNsmError } from './development-root.ts'

/** What a document is signed with, and what it carries to be checked. */
export type SigningChain = {
  /** Leaf, DER. */
  readonly certificate: Uint8Array
  /** DER, root first, the leaf's issuer last. */
  readonly cabundle: readonly Uint8Array[]
  readonly privateKey: KeyObject
}

export type ModuleIdentity = {
  /** `i-` and 17 hex digits. */
  readonly instanceId: string
  /** 8 bytes: milliseconds of the enclave's start, 2 random bytes. */
  readonly enclaveId: Uint8Array
}

/** `i-…-enc…`, as documents name the module. */
export function moduleIdOf({ instanceId, enclaveId }: ModuleIdentity): string {
  return `${instanceId}-enc${Buffer.from(enclaveId).toString('hex')}`
}

/**
 * Gives a function from the time (Unix milliseconds) to a chain valid then, whose leaf has at least
 * half of its life left. Certificates are kept until due and then reissued together with everything
 * below them; also when the clock was turned back before their start. Throws SoftwareNsmError
 * `invalid_root` when the root is about to expire.
 */
export function createCertificateChain(
  root: DevelopmentRoot,
  identity: ModuleIdentity,
): (nowMs: number) => SigningChain {
  let links: readonly Link[] = []
  return (nowMs) => {
    const now = Math.floor(nowMs / 1000)
    if (root.notAfter - now < CERTIFICATE_PROFILES.root.renewSeconds)
      throw new SoftwareNsmError(
        'invalid_root',
        'the development root expires soon; remove it, then a new root is made',
      )
    links = renewLinks({ links, root, identity, now })
    const leaf = links.at(-1)
    if (leaf === undefined) throw new TypeError('no leaf certificate')
    const authorities = links.slice(0, -1).map((link) => link.certificate)
    return {
      certificate: leaf.certificate,
      cabundle: [root.certificate, ...authorities],
      privateKey: leaf.privateKey,
    }
  }
}

type Link = Issuer & {
  readonly certificate: Uint8Array
  readonly notBefore: number
  readonly notAfter: number
}

type IssuedRole = Exclude<CertificateRole, 'root'>

const ISSUED_ROLES = CERTIFICATE_ROLES.filter((role): role is IssuedRole => role !== 'root')

/** Stands where AWS has the region; nothing in it is a real place. */
const REGION = 'dev-local-1'

/** RFC 2606: never resolves, so no client ever fetches a list there. */
const CRL_ORIGIN = 'http://crl.affidavit.invalid'

function renewLinks(state: {
  links: readonly Link[]
  root: DevelopmentRoot
  identity: ModuleIdentity
  now: number
}): readonly Link[] {
  const { links, root, identity, now } = state
  const kept: Link[] = []
  let fresh = false
  for (const [level, role] of ISSUED_ROLES.entries()) {
    const old = links[level]
    fresh ||=
      old === undefined ||
      now < old.notBefore ||
      old.notAfter - now < CERTIFICATE_PROFILES[role].renewSeconds
    kept.push(
      fresh || old === undefined
        ? issueLink({ role, identity, now, issuer: kept.at(-1) ?? root })
        : old,
    )
  }
  return kept
}

function issueLink(order: {
  role: IssuedRole
  identity: ModuleIdentity
  now: number
  issuer: Issuer
}): Link {
  const { role, identity, now, issuer } = order
  const profile = CERTIFICATE_PROFILES[role]
  const { privateKey, publicKey } = generateKeyPairSync('ec', { namedCurve: 'P-384' })
  const name = encodeName(NAMES[role](identity))
  const notBefore = now - profile.backdateSeconds
  const notAfter = now + profile.lifeSeconds
  const certificate = issueCertificate(
    {
      profile,
      subject: name,
      publicKey,
      serial: SERIALS[role](identity, now),
      notBefore,
      notAfter,
      crlUri: `${CRL_ORIGIN}/crl/${randomUUID()}.crl`,
    },
    issuer,
  )
  return { name, keyId: keyIdOf(publicKey), privateKey, certificate, notBefore, notAfter }
}

/** AWS's attribute orders and forms of CN, with our own organisation in place of theirs. */
const NAMES: Readonly<Record<IssuedRole, (identity: ModuleIdentity) => readonly NameAttribute[]>> =
  {
    regional: () => [
      ['C', 'US'],
      ['O', 'Affidavit'],
      ['OU', 'Development'],
      ['CN', `${randomBytes(8).toString('hex')}.${REGION}.affidavit.nitro-enclaves`],
    ],
    zonal: () => [
      ['CN', `${randomBytes(8).toString('hex')}.zonal.${REGION}.affidavit.nitro-enclaves`],
      ['OU', 'Development'],
      ['O', 'Affidavit'],
      ['C', 'US'],
      ['ST', 'WA'],
      ['L', 'Seattle'],
    ],
    instance: ({ instanceId }) => instanceName(`${instanceId}.${REGION}.affidavit.nitro-enclaves`),
    leaf: (identity) => instanceName(`${moduleIdOf(identity)}.${REGION}.affidavit`),
  }

function instanceName(commonName: string): readonly NameAttribute[] {
  return [
    ['C', 'US'],
    ['ST', 'Washington'],
    ['L', 'Seattle'],
    ['O', 'Affidavit'],
    ['OU', 'Development'],
    ['CN', commonName],
  ]
}

/**
 * Random, but for the leaf's: the enclave id, then the second of issue, as AWS's leaves have it.
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
