import { decodeBase64 } from '../bytes.ts'
import { DerError, type DerNode, decodeDer } from '../nitro/der.ts'
import { DER_TAGS, decodeObjectIdentifier } from '../nitro/der-value.ts'
import { EifError } from './eif-error.ts'

/** A curve that AWS's image signer takes, with the COSE algorithm (RFC 9053) that belongs to it. */
export type SigningCurve = {
  readonly namedCurve: 'P-256' | 'P-384' | 'P-521'
  readonly hash: 'SHA-256' | 'SHA-384' | 'SHA-512'
  readonly name: 'ES256' | 'ES384' | 'ES512'
  /** Of the algorithm, in a COSE header. */
  readonly identifier: number
}

export type SigningCertificate = {
  readonly der: Uint8Array<ArrayBuffer>
  /** SubjectPublicKeyInfo, DER. */
  readonly publicKey: Uint8Array<ArrayBuffer>
  readonly curve: SigningCurve
}

/**
 * Reads the first certificate of attacker-controlled PEM text, as AWS's reader does. Looks at nothing but its
 * encoding and its key: neither its issuer, nor its validity, nor what it may be used for, since the Nitro
 * hypervisor measures it and leaves judging it to whoever knows PCR8. Throws EifError `certificate_malformed`.
 */
export function parseSigningCertificate(pem: Uint8Array): SigningCertificate {
  const der = decodePem(pem)
  const publicKey = findPublicKey(decodeStrict(der))
  const [algorithm, curve] = publicKey.children[0]?.children.map(readIdentifier) ?? []
  const known = algorithm === EC_PUBLIC_KEY ? SIGNING_CURVES.get(curve ?? '') : undefined
  if (known === undefined) throw malformed('expected an EC key on P-256, P-384 or P-521')
  return { der, publicKey: publicKey.encoding.slice(), curve: known }
}

const EC_PUBLIC_KEY = '1.2.840.10045.2.1'

/** By the object identifier of the curve (RFC 5480, 2.1.1.1). */
const SIGNING_CURVES: ReadonlyMap<string, SigningCurve> = new Map([
  ['1.2.840.10045.3.1.7', { namedCurve: 'P-256', hash: 'SHA-256', name: 'ES256', identifier: -7 }],
  ['1.3.132.0.34', { namedCurve: 'P-384', hash: 'SHA-384', name: 'ES384', identifier: -35 }],
  ['1.3.132.0.35', { namedCurve: 'P-521', hash: 'SHA-512', name: 'ES512', identifier: -36 }],
])

const PEM_BLOCK = /-----BEGIN CERTIFICATE-----([A-Za-z0-9+/=\s]*)-----END CERTIFICATE-----/

/** `[0]` version. */
const VERSION_TAG = 0xa0

function decodePem(pem: Uint8Array): Uint8Array<ArrayBuffer> {
  const body = PEM_BLOCK.exec(new TextDecoder('latin1').decode(pem))?.[1]
  if (body === undefined) throw malformed('expected a PEM certificate')
  try {
    return new Uint8Array(decodeBase64(body.replace(/\s+/g, '')))
  } catch {
    throw malformed('expected base64 in the PEM certificate')
  }
}

function decodeStrict(der: Uint8Array<ArrayBuffer>): DerNode {
  try {
    return decodeDer(der)
  } catch (error) {
    if (error instanceof DerError) throw malformed(error.message)
    throw error
  }
}

/** The field after version (which may be left out), serial, algorithm, issuer, validity and subject (RFC 5280, 4.1). */
function findPublicKey(certificate: DerNode): DerNode {
  const fields = certificate.tag === DER_TAGS.sequence ? (certificate.children[0]?.children ?? []) : []
  const publicKey = fields[fields[0]?.tag === VERSION_TAG ? 6 : 5]
  if (publicKey?.tag !== DER_TAGS.sequence) throw malformed('expected a certificate with a public key')
  return publicKey
}

function readIdentifier(node: DerNode): string {
  return node.tag === DER_TAGS.objectIdentifier ? decodeObjectIdentifier(node.content) : ''
}

function malformed(message: string): EifError {
  return new EifError('certificate_malformed', message)
}
