import { concatBytes, encodeHex, equalBytes, sha256 } from '../bytes.ts'
import { AttestationError } from './attestation-error.ts'
import {
  type Certificate,
  type CertificateProfile,
  importKeyOf,
  NITRO_CERTIFICATES,
  parseCertificate,
  parseCertificateSignature,
} from './certificate.ts'
import { checkRevocationLists, trimSerial } from './check-revocation.ts'
import type { AttestationDocument } from './document.ts'
import { type EcdsaKey, verifyEcdsa } from './ecdsa.ts'
import type { ResolvedPolicy, RevokedCertificate } from './policy.ts'

/** A policy for a chain. `atMs` is Unix milliseconds. `roots` are SHA-256 fingerprints. */
type ChainExpectation = Pick<
  ResolvedPolicy,
  'roots' | 'revoked' | 'revocationLists' | 'mode' | 'futureSkewMs'
> & {
  readonly atMs: number
  readonly cache: ChainCache | null
  /** Default: AWS's certificates. */
  readonly profile?: CertificateProfile
}

/** The part of a certificate that the checks of a chain read. Its key may be of any kind. */
type LinkedCertificate = Omit<Certificate, 'curve' | 'point'>

type VerifiedChain = LinkedChain & { readonly leaf: Certificate }

/**
 * Verifies that the certificate leads to a trusted root (rules 13 to 19), and that all certificates
 * were valid at `atMs`. Downloads no revocation lists, so it does NOT prove that no certificate was
 * revoked. Throws AttestationError.
 */
export async function verifyChain(
  { cabundle, certificate }: Pick<AttestationDocument, 'cabundle' | 'certificate'>,
  expectation: ChainExpectation,
): Promise<VerifiedChain> {
  const { roots, revoked, revocationLists: lists, mode, futureSkewMs, atMs, cache } = expectation
  const { profile = NITRO_CERTIFICATES } = expectation
  const ders = [...cabundle, certificate]
  const root = pinnedRoot(cabundle, roots, profile)
  const known = cache?.get(ders)
  const certificates = known?.certificates ?? parseChain(root, ders.slice(1), profile)
  checkValidity(certificates, { atMs, skewMs: mode === 'historical' ? 0 : futureSkewMs })
  checkRevocation(certificates, revoked)
  checkRevocationLists(certificates, { lists, mode, atMs })
  const leafKey = known?.leafKey ?? (await verifyLinks(certificates))
  if (!known) cache?.set(ders, { certificates, leafKey })
  return { certificates, leafKey, leaf: lastOf(certificates) }
}

function sayUntrusted(roots: readonly Uint8Array[], got: Uint8Array): string {
  const expected = roots.map(encodeHex).join(' or ')
  return `expected the root with the SHA-256 ${expected}, got ${encodeHex(got)}`
}

/** Caches roots by fingerprint, because policies name few roots and many chains share them. */
const parsedRoots = new WeakMap<CertificateProfile, Map<string, Certificate>>()

/** Parses a copy of the root, because callers can change the original bytes. */
function pinnedRoot(
  [first, ...others]: readonly Uint8Array<ArrayBuffer>[],
  roots: readonly Uint8Array[],
  profile: CertificateProfile,
): Certificate {
  const { authorities } = profile
  const fingerprint = sha256(first ?? new Uint8Array())
  if (!first || !isPinned(fingerprint, roots))
    throw others.some((der) => isPinned(sha256(der), roots))
      ? new AttestationError('chain_order', `expected the trusted root to be ${authorities}[0]`)
      : new AttestationError('root_untrusted', sayUntrusted(roots, fingerprint))
  const parsed = parsedRoots.get(profile) ?? new Map<string, Certificate>()
  parsedRoots.set(profile, parsed)
  const name = encodeHex(fingerprint)
  const root = parsed.get(name) ?? parseCertificate(first.slice(), `${authorities}[0]`, profile)
  parsed.set(name, root)
  return root
}

export function isPinned(fingerprint: Uint8Array, roots: readonly Uint8Array[]): boolean {
  return roots.some((root) => equalBytes(root, fingerprint))
}

/** Returns the chain, root first. */
function parseChain(
  root: Certificate,
  ders: readonly Uint8Array<ArrayBuffer>[],
  profile: CertificateProfile,
): readonly Certificate[] {
  const below = ders.map((der, index) => {
    const where = index === ders.length - 1 ? 'leaf' : `${profile.authorities}[${index + 1}]`
    return parseCertificate(der, where, profile)
  })
  const certificates = [root, ...below]
  if (new Set(certificates.map(({ sha256 }) => encodeHex(sha256))).size < certificates.length) {
    throw new AttestationError('chain_repeated_certificate', 'expected each certificate once')
  }
  checkLinks(certificates)
  return certificates
}

/**
 * Validity includes its start and its end (RFC 5280 section 4.1.2.5). A clock that is `skewMs` slow
 * still accepts a new certificate.
 */
export function checkValidity(
  certificates: readonly LinkedCertificate[],
  { atMs, skewMs }: { readonly atMs: number; readonly skewMs: number },
): void {
  const early = certificates.find(({ notBeforeMs }) => atMs + skewMs < notBeforeMs)
  if (early) {
    const aheadMs = early.notBeforeMs - atMs
    throw new AttestationError(
      'certificate_not_yet_valid',
      `${early.where} is not valid yet, for ${Math.ceil(aheadMs / 1000)} s: ` +
        "is this machine's clock right?",
    )
  }
  const late = certificates.find(({ notAfterMs }) => atMs > notAfterMs)
  if (late) throw new AttestationError('certificate_expired', `${late.where} has expired`)
}

function checkRevocation(
  certificates: readonly Certificate[],
  revoked: readonly RevokedCertificate[],
): void {
  const found = certificates.find(({ issuer, serial }) =>
    revoked.some(
      (entry) =>
        equalBytes(entry.issuer, issuer.encoding) &&
        equalBytes(trimSerial(entry.serial), trimSerial(serial)),
    ),
  )
  if (found) throw new AttestationError('certificate_revoked', `${found.where} is revoked`)
}

/**
 * Two verifications at once use a second core. With more at once, the verifier would do more work
 * for a forged chain.
 */
const LINKS_AT_ONCE = 2

/**
 * Verifies the links, starting at the root, which is pinned and needs no signature. A forgery costs
 * at most two verifications. A key is imported while the link above it is verified.
 */
async function verifyLinks([root, ...descendants]: readonly Certificate[]): Promise<EcdsaKey> {
  const signatures = descendants.map(parseCertificateSignature)
  let key = await importKey(root)
  for (let start = 0; start < descendants.length; start += LINKS_AT_ONCE) {
    const started: Promise<boolean>[] = []
    const batch = descendants.slice(start, start + LINKS_AT_ONCE)
    for (const [index, certificate] of batch.entries()) {
      const signature = signatures[start + index] ?? new Uint8Array()
      started.push(verifyEcdsa({ key, signature, data: certificate.signed }))
      key = await importKey(certificate)
    }
    const broken = batch[(await Promise.all(started)).indexOf(false)]
    if (broken) {
      const message = `${broken.where}: expected a signature by the certificate before it`
      throw new AttestationError('certificate_signature_invalid', message)
    }
  }
  return key
}

async function importKey(certificate: Certificate | undefined): Promise<EcdsaKey> {
  const key = certificate ? await importKeyOf(certificate) : null
  if (key === null) {
    throw new AttestationError(
      'certificate_point',
      `${certificate?.where}: expected a point on ${certificate?.curve.name}`,
    )
  }
  return key
}

function lastOf(certificates: readonly Certificate[]): Certificate {
  const leaf = certificates.at(-1)
  if (!leaf) throw new AttestationError('certificate_size', 'expected a certificate')
  return leaf
}

/**
 * Checks the claims that connect a chain (root first, leaf last): order, names, CA and leaf
 * constraints (rules 14, 16, 17). Without the signatures, the claims prove nothing. Throws
 * AttestationError.
 */
function checkLinks(certificates: readonly Certificate[]): void {
  for (const [index, certificate] of certificates.entries()) {
    const parent = certificates[index - 1]
    if (parent) checkIssuer(certificate, { parent, certificates })
  }
  for (const [index, certificate] of certificates.entries()) {
    const following = certificates.length - index - 2
    if (following < 0) checkLeaf(certificate)
    else checkAuthority(certificate, { following })
  }
}

/** RFC 5280 section 6.1.3 (a)(4). Comparing names by bytes is enough for these chains. */
export function checkIssuer(
  certificate: LinkedCertificate,
  {
    parent,
    certificates,
  }: {
    readonly parent: LinkedCertificate
    readonly certificates: readonly LinkedCertificate[]
  },
): void {
  if (isSameName(certificate, parent)) return
  const elsewhere = certificates.some(
    (other) => other !== certificate && isSameName(certificate, other),
  )
  throw elsewhere
    ? new AttestationError(
        'chain_order',
        `expected the issuer of ${certificate.where} right before it`,
      )
    : new AttestationError(
        'issuer_mismatch',
        `expected the issuer of ${certificate.where} to be the subject of ${parent.where}`,
      )
}

function isSameName({ issuer }: LinkedCertificate, { subject }: LinkedCertificate): boolean {
  return equalBytes(issuer.encoding, subject.encoding)
}

/**
 * `following`: the number of CA certificates below this one. Self-issued certificates count too.
 */
export function checkAuthority(
  certificate: LinkedCertificate,
  { following }: { readonly following: number },
): void {
  const { basicConstraints, keyUsage, where } = certificate
  if (!basicConstraints?.critical || !basicConstraints.ca) {
    throw new AttestationError(
      'ca_basic_constraints',
      `${where}: expected critical basicConstraints with cA`,
    )
  }
  if (!keyUsage?.keyCertSign) {
    throw new AttestationError('ca_key_usage', `${where}: expected keyUsage with keyCertSign`)
  }
  const { pathLength } = basicConstraints
  if (pathLength !== null && following > pathLength) {
    const message = `${where}: expected at most ${pathLength} CA certificates below it, got ${following}`
    throw new AttestationError('path_length_exceeded', message)
  }
}

function checkLeaf({ basicConstraints, keyUsage }: Certificate): void {
  if (basicConstraints?.ca)
    throw new AttestationError('leaf_is_ca', 'leaf: expected no CA certificate')
  if (!keyUsage?.digitalSignature) {
    throw new AttestationError('leaf_key_usage', 'leaf: expected keyUsage with digitalSignature')
  }
}

/** Default number of cached chains, about 8 KB each. Each enclave in use needs one. */
export const CHAINS_MAX_DEFAULT = 64

/**
 * A chain, root first, with verified form, links and signatures. Its root, times and revocation are
 * checked at each use.
 */
export type LinkedChain = {
  readonly certificates: readonly Certificate[]
  readonly leafKey: EcdsaKey
}

/** Verified chains. Key: the exact bytes of all their certificates. */
export type ChainCache = {
  get(ders: readonly Uint8Array[]): LinkedChain | undefined
  set(ders: readonly Uint8Array[], chain: LinkedChain): void
}

/** Evicts the least recently used chain. */
export function createChainCache(entriesMax: number): ChainCache {
  const chains = new Map<string, LinkedChain>()
  return {
    get(ders) {
      const key = keyOf(ders)
      const chain = chains.get(key)
      if (chain) {
        chains.delete(key)
        chains.set(key, chain)
      }
      return chain
    },
    set(ders, chain) {
      chains.set(keyOf(ders), chain)
      if (chains.size <= entriesMax) return
      const oldest = chains.keys().next()
      if (!oldest.done) chains.delete(oldest.value)
    },
  }
}

/** Hashes the lengths too, so that the same bytes, split in another way, have another key. */
function keyOf(ders: readonly Uint8Array[]): string {
  const lengths = Uint16Array.from(ders, (der) => der.length)
  return encodeHex(sha256(concatBytes(new Uint8Array(lengths.buffer), ...ders)))
}
