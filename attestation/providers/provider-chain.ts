import { decodeBase64 } from '../bytes.ts'
import { FormatError } from '../errors.ts'
import { AttestationError } from '../nitro/attestation-error.ts'
import type { Certificate, CertificateProfile } from '../nitro/certificate.ts'
import { type LinkedChain, verifyChain } from '../nitro/chain.ts'
import { checkRevocationLists, type RevocationList } from '../nitro/check-revocation.ts'
import { ProviderEvidenceError } from './provider-error.ts'

/** Real chains have 2 to 5 certificates. */
const CHAIN_CERTIFICATES_MAX = 8
const PEM_CHARACTERS_MAX = 32_768

/**
 * Verifies the chain (DER, root first, leaf last) of a hardware maker at `atMs`, by rules 13 to 18
 * of nitro/rules.md. `roots` are SHA-256 fingerprints. Throws ProviderEvidenceError with the codes
 * of those rules. Does NOT prove that no certificate was revoked: see checkProviderLists.
 */
export async function verifyProviderChain(
  ders: readonly Uint8Array<ArrayBuffer>[],
  {
    roots,
    atMs,
    profile,
  }: {
    readonly roots: readonly Uint8Array[]
    readonly atMs: number
    readonly profile: CertificateProfile
  },
): Promise<LinkedChain & { readonly leaf: Certificate }> {
  const chain = { cabundle: ders.slice(0, -1), certificate: ders.at(-1) ?? new Uint8Array() }
  return await asProviderFault(() =>
    verifyChain(chain, {
      roots,
      atMs,
      profile,
      mode: 'current',
      futureSkewMs: 0,
      revoked: [],
      revocationLists: [],
      cache: null,
    }),
  )
}

/**
 * Refuses a chain (root first) if a list names a certificate of the chain. Also refuses a list that
 * has no issuer in the chain or is not valid at `atMs`. Throws ProviderEvidenceError with the codes
 * of rule 19.
 */
export async function checkProviderLists(
  certificates: readonly Certificate[],
  { lists, atMs }: { readonly lists: readonly RevocationList[]; readonly atMs: number },
): Promise<void> {
  await asProviderFault(() => checkRevocationLists(certificates, { lists, mode: 'current', atMs }))
}

/** An AttestationError of the check becomes a ProviderEvidenceError with the same code. */
export async function asProviderFault<Value>(check: () => Promise<Value> | Value): Promise<Value> {
  try {
    return await check()
  } catch (fault) {
    if (fault instanceof AttestationError)
      throw new ProviderEvidenceError(fault.code, fault.message)
    throw fault
  }
}

const PEM =
  /-----BEGIN CERTIFICATE-----\r?\n((?:[A-Za-z0-9+/=]+\r?\n)+)-----END CERTIFICATE-----(?:\r?\n)*/y

/**
 * Returns the certificates (DER) of an attacker-controlled PEM text, in the order of the text.
 * Throws ProviderEvidenceError `pem_malformed`, also if the text has anything else but NULs at its
 * end, which C programs send along. `where` names the text in the message.
 */
export function parsePemChain(given: string, where: string): readonly Uint8Array<ArrayBuffer>[] {
  const text = withoutNulsAtEnd(given)
  const ders: Uint8Array<ArrayBuffer>[] = []
  let position = 0
  while (position < text.length && ders.length < CHAIN_CERTIFICATES_MAX) {
    PEM.lastIndex = position
    const base64 = text.length > PEM_CHARACTERS_MAX ? undefined : PEM.exec(text)?.[1]
    if (base64 === undefined) break
    ders.push(bytesOf(base64, where))
    position = PEM.lastIndex
  }
  if (ders.length === 0 || position < text.length) throw malformed(where)
  return ders
}

function withoutNulsAtEnd(text: string): string {
  let end = text.length
  while (end > 0 && text[end - 1] === '\0') end--
  return text.slice(0, end)
}

function bytesOf(base64: string, where: string): Uint8Array<ArrayBuffer> {
  try {
    return new Uint8Array(decodeBase64(base64.replaceAll(/\s/g, '')))
  } catch (fault) {
    if (fault instanceof FormatError) throw malformed(where)
    throw fault
  }
}

function malformed(where: string): ProviderEvidenceError {
  return new ProviderEvidenceError(
    'pem_malformed',
    `${where}: expected 1 to ${CHAIN_CERTIFICATES_MAX} certificates in PEM and no other text`,
  )
}
