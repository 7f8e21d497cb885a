import { AttestationError } from './attestation-error.ts'
import type { Certificate } from './certificate.ts'

/**
 * Checks the claims by which a chain (root first, leaf last) hangs together: order, names, CA and leaf constraints
 * (rules 14, 16, 17). They mean something only together with the signatures. Throws AttestationError.
 */
export function checkLinks(certificates: readonly Certificate[]): void {
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

/** RFC 5280 section 6.1.3 (a)(4), by bytes: nobody here needs the equivalences of names. */
function checkIssuer(
  certificate: Certificate,
  { parent, certificates }: { readonly parent: Certificate; readonly certificates: readonly Certificate[] },
): void {
  if (isSameName(certificate, parent)) return
  const elsewhere = certificates.some((other) => other !== certificate && isSameName(certificate, other))
  throw elsewhere
    ? new AttestationError('chain_order', `expected the issuer of ${certificate.where} right before it`)
    : new AttestationError(
        'issuer_mismatch',
        `expected the issuer of ${certificate.where} to be the subject of ${parent.where}`,
      )
}

function isSameName({ issuer }: Certificate, { subject }: Certificate): boolean {
  return (
    issuer.encoding.length === subject.encoding.length &&
    issuer.encoding.every((byte, index) => byte === subject.encoding[index])
  )
}

/** `following`: how many CA certificates come between this one and the leaf. All count, self-issued ones too. */
function checkAuthority(certificate: Certificate, { following }: { readonly following: number }): void {
  const { basicConstraints, keyUsage, where } = certificate
  if (!basicConstraints?.critical || !basicConstraints.ca) {
    throw new AttestationError('ca_basic_constraints', `${where}: expected critical basicConstraints with cA`)
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
  if (basicConstraints?.ca) throw new AttestationError('leaf_is_ca', 'leaf: expected no CA certificate')
  if (!keyUsage?.digitalSignature) {
    throw new AttestationError('leaf_key_usage', 'leaf: expected keyUsage with digitalSignature')
  }
}
