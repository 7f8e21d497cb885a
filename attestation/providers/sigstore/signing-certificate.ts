import { encodeHex, equalBytes } from '../../bytes.ts'
import { AttestationError } from '../../nitro/attestation-error.ts'
import {
  type CertificateFields,
  checkAlgorithm,
  importKeyOf,
  parseCertificate,
  pointOf,
  readCertificate,
} from '../../nitro/certificate.ts'
import { checkAuthority, checkIssuer, checkValidity } from '../../nitro/chain.ts'
import { DER_TAGS, latin1 } from '../../nitro/der.ts'
import { type EcdsaKey, importPoint, P256, P384 } from '../../nitro/ecdsa.ts'
import { tryDecodeDer } from '../try-decode-der.ts'
import { isSignedWith } from './der-signature.ts'
import { refuseBundle } from './sigstore-codes.ts'
import { ANY_TAG, type CodeIdentity, type SigstoreTrust } from './sigstore-trust.ts'

type SigningCertificate = {
  readonly fields: CertificateFields
  readonly key: EcdsaKey
  /** SubjectPublicKeyInfo of the authority. */
  readonly issuerKey: Uint8Array
}

/** The builder of the code. GitHub stated these values to Fulcio. */
export type CodeBuilder = {
  /** OWNER/NAME. */
  readonly repository: string
  readonly ref: string
  readonly commit: string
  /** The workflow's file, with its ref. */
  readonly workflow: string
}

const NAMES = '2.5.29.17'
const USAGES = '2.5.29.37'
/** Fulcio's extensions, github.com/sigstore/fulcio/blob/main/docs/oid-info.md. */
const FULCIO = '1.3.6.1.4.1.57264.1'
/** DER of extKeyUsage with code signing alone. */
const CODE_SIGNING = '300a06082b06010505070303'

/**
 * Extensions that are not parsed as DER: the names, the usages, and each type outside 2.5.29.
 * Fulcio's oldest extensions are not DER.
 */
const LEAF = {
  isOpaque: (type: string) => type === NAMES || type === USAGES || !type.startsWith('2.5.29.'),
  understood: [NAMES],
}
const AUTHORITY = { curve: P384, isOpaque: () => false, authorities: 'authorities' }

/**
 * Verifies that a trusted authority issued the certificate (DER, P-256, for signing code), and that
 * this certificate and the authority's certificate were valid at `atMs`, the time of the log entry.
 * Fulcio's certificates are valid for only ten minutes. Throws ProviderEvidenceError.
 */
export async function verifySigningCertificate(
  der: Uint8Array<ArrayBuffer>,
  { authorities, atMs }: Pick<SigstoreTrust, 'authorities'> & { readonly atMs: number },
): Promise<SigningCertificate> {
  try {
    const fields = readCertificate(der, 'leaf', LEAF)
    checkAlgorithm(fields.algorithm, 'leaf', P384)
    const found = authorities
      .map((one) => ({ one, authority: parseCertificate(one, 'authority', AUTHORITY) }))
      .find(({ authority }) => equalBytes(authority.subject.encoding, fields.issuer.encoding))
    if (!found) throw refuseBundle('authority_unknown', 'expected a trusted authority')
    const { one: authorityDer, authority } = found
    checkIssuer(fields, { parent: authority, certificates: [authority, fields] })
    checkAuthority(authority, { following: 0 })
    checkValidity([authority, fields], { atMs, skewMs: 0 })
    const issuerKey = await importKeyOf(authority)
    if (!issuerKey || !(await isSignedWith(issuerKey, fields.signature, fields.signed)))
      throw refuseBundle('signing_certificate', 'expected a certificate that the authority signed')
    checkUsage(fields)
    const key = await importPoint(pointOf(fields.publicKey, 'leaf', P256), P256)
    if (key === null) throw refuseBundle('signing_certificate', 'expected a key on P-256')
    const { publicKey } = readCertificate(authorityDer, 'authority', AUTHORITY)
    return { fields, key, issuerKey: publicKey.encoding }
  } catch (fault) {
    if (fault instanceof AttestationError) throw refuseBundle('signing_certificate', fault.message)
    throw fault
  }
}

function checkUsage({ basicConstraints, keyUsage, opaque }: CertificateFields): void {
  const usages = opaque.get(USAGES)
  const isForCode = usages !== undefined && encodeHex(usages) === CODE_SIGNING
  if (basicConstraints?.ca || !keyUsage?.digitalSignature || !isForCode)
    throw refuseBundle('signing_usage', 'expected a certificate for signing code alone')
}

const ISSUER = 'https://token.actions.githubusercontent.com'
const GITHUB = 'https://github.com/'

/** GitHub stated these values to Fulcio. Throws ProviderEvidenceError. */
export function readBuilder({ fields: { opaque } }: SigningCertificate): CodeBuilder {
  const textOf = (arc: number) => utf8Of(opaque.get(`${FULCIO}.${arc}`))
  if (textOf(8) !== ISSUER)
    throw refuseBundle('identity_issuer', `expected an identity of ${ISSUER}`)
  const [source, workflow] = [textOf(12), nameOf(opaque.get(NAMES))]
  const repository = source.slice(GITHUB.length)
  const ref = textOf(14)
  const isOwn = workflow.startsWith(`${source}/.github/workflows/`)
  if (!source.startsWith(GITHUB) || !isOwn || !workflow.endsWith(`@${ref}`))
    throw refuseBundle('identity_workflow', 'expected a workflow of the repository at the ref')
  return { repository, ref, commit: textOf(13), workflow: workflow.slice(GITHUB.length) }
}

/** Throws ProviderEvidenceError unless repository and ref are accepted. */
export function checkBuilder(builder: CodeBuilder, { repository, refs }: CodeIdentity): void {
  if (builder.repository !== repository)
    throw refuseBundle('identity_repository', `expected the repository ${repository}`)
  const { ref } = builder
  if (!refs.some((one) => (one === ANY_TAG ? ref.startsWith('refs/tags/') : one === ref)))
    throw refuseBundle('identity_ref', `expected a build of ${refs.join(' or ')}`)
}

function utf8Of(bytes: Uint8Array<ArrayBuffer> | undefined): string {
  const node = bytes && tryDecodeDer(bytes)
  if (node?.tag !== DER_TAGS.utf8String)
    throw refuseBundle('identity_malformed', "expected Fulcio's extensions as texts")
  return new TextDecoder().decode(node.content)
}

const URI_NAME = 0x86

/** subjectAltName must hold one URI and no other name. */
function nameOf(bytes: Uint8Array<ArrayBuffer> | undefined): string {
  const node = bytes && tryDecodeDer(bytes)
  const [name, ...others] = node?.tag === DER_TAGS.sequence ? node.children : []
  if (name?.tag !== URI_NAME || others.length > 0)
    throw refuseBundle('identity_malformed', 'expected one URI as the name')
  return latin1(name.content)
}
