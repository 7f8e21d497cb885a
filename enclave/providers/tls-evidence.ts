import { createHash } from 'node:crypto'
import type { TLSSocket } from 'node:tls'
import type { ReceiptTls } from '../../attestation/receipt.ts'

/** Longest distinguished name in a receipt, characters; a longer one is cut. */
export const NAME_CHARACTERS_MAX = 1024

/**
 * Whose TLS key is at the other end of a connection, for the receipt: negotiated protocol, SHA-256 of the leaf
 * certificate's subjectPublicKeyInfo, subject and issuer on one line. Read once for each connection.
 *
 * Only for a socket that Node.js verified (rejectUnauthorized); throws when it did not. Shows which key answered, NOT
 * what produced the answer behind it (a CDN may hold the key).
 */
export function tlsEvidence(socket: TLSSocket): ReceiptTls {
  const known = evidenceBySocket.get(socket)
  if (known) return known
  const certificate = socket.getPeerX509Certificate()
  if (!socket.authorized || certificate === undefined)
    throw new Error('expected a TLS connection whose certificate was verified')
  const spki = certificate.publicKey.export({ type: 'spki', format: 'der' })
  const evidence: ReceiptTls = {
    protocol: socket.getProtocol() ?? 'unknown',
    spki_sha256: createHash('sha256').update(spki).digest('hex'),
    subject: toOneLine(certificate.subject),
    issuer: toOneLine(certificate.issuer),
  }
  evidenceBySocket.set(socket, evidence)
  return evidence
}

const evidenceBySocket = new WeakMap<TLSSocket, ReceiptTls>()

/** Node.js writes one attribute a line, and escapes commas and line breaks within them (RFC 2253). */
function toOneLine(name: string | undefined): string {
  return (name ?? '').split('\n').join(', ').toWellFormed().slice(0, NAME_CHARACTERS_MAX).toWellFormed()
}
