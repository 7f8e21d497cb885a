import type { Json, JsonObject } from '#attestation/json/value.ts'
import type { CodeIdentity, SigstoreTrust } from '#attestation/providers/sigstore/sigstore-trust.ts'
import {
  builderExtensions,
  builderOf,
  buildLogEntry,
  buildStatement,
  bundleOf,
  CODE_AUTHORITY,
  codeCertificateParts,
  entryBodyOf,
  STATEMENT_PAYLOAD,
  signStatement,
  timestampExtension,
} from '#src/local/tee/sigstore-bundle.ts'
import { TINFOIL_PREDICATE } from '#src/local/tee/tinfoil-answer.ts'
import {
  buildCertificate,
  type CertificateParts,
  extension,
  generateKey,
  type KeyPair,
  makeAuthority,
  publicKeyInfo,
} from '../nitro-builder/certificate-builder.ts'
import { MADE_AT } from '../nitro-builder/development-pki.ts'

/** Everything of a bundle that a test can change, so that one rule is broken. */
export type SigstoreChanges = {
  readonly certificate?: Partial<CertificateParts>
  /** Fulcio's texts by the last arc of their type. */
  readonly texts?: Readonly<Record<number, string | null>>
  readonly subjectName?: string
  readonly usages?: string | null
  readonly timestampSigner?: KeyPair
  readonly timestampLog?: KeyPair
  /** Changes the list of timestamps. Null leaves the extension out. */
  readonly timestamps?: ((list: Buffer) => Uint8Array) | null
  /** Changes the certificate after it got its timestamp. */
  readonly afterTimestamp?: Partial<CertificateParts>
  readonly statement?: Json
  readonly payloadType?: string
  readonly envelopeSigner?: KeyPair
  /** Changes the log's entry before the log promises it. */
  readonly body?: (body: Record<string, Json>) => void
  /** Changes the bundle at the end. */
  // biome-ignore lint/suspicious/noExplicitAny: a test breaks any member of the bundle
  readonly bundle?: (bundle: any) => void
  readonly logSigner?: KeyPair
  readonly checkpointSigner?: KeyPair
  readonly checkpoint?: (text: string) => string
}

export const IDENTITY: CodeIdentity = {
  repository: 'example/model',
  refs: ['refs/tags/v1.0.0'],
  digests: null,
}

const leafKey = generateKey('P-256')
const logKey = generateKey('P-256')
const certificateLogKey = generateKey('P-256')
const MINUTE_MS = 60_000
const YEAR_MS = 365 * 24 * 60 * MINUTE_MS
const LOGGED_AT = new Date(MADE_AT.getTime() - 60 * MINUTE_MS)

const authority = makeAuthority(CODE_AUTHORITY, {
  from: new Date(MADE_AT.getTime() - YEAR_MS),
  to: new Date(MADE_AT.getTime() + YEAR_MS),
})

/** Trusts the development authority and the development log. */
export const DEVELOPMENT_SIGSTORE: SigstoreTrust = {
  authorities: [authority.certificate],
  logs: [publicKeyInfo(logKey)],
  certificateLogs: [publicKeyInfo(certificateLogKey)],
}

const BUILDER = builderOf('example/model', 'refs/tags/v1.0.0')

export const DIGEST = 'ab'.repeat(32)

/** A statement of a build with this predicate. */
export function statementOf(predicate: Json, predicateType = TINFOIL_PREDICATE): Json {
  return buildStatement(DIGEST, { predicate, predicateType })
}

/** A bundle as Sigstore makes it, but for the changes. */
export function buildSigstoreBundle(changes: SigstoreChanges = {}): JsonObject {
  const signed = signStatement(changes.statement ?? statementOf({ some: 'thing' }), {
    key: changes.envelopeSigner ?? leafKey,
    certificate: buildLeaf(changes),
    payloadType: changes.payloadType ?? STATEMENT_PAYLOAD,
  })
  const body = { ...entryBodyOf(signed) }
  changes.body?.(body)
  const { logSigner = logKey, checkpointSigner = logKey, checkpoint } = changes
  const entry = buildLogEntry(body, {
    keys: { id: logKey, promise: logSigner, checkpoint: checkpointSigner },
    loggedAt: LOGGED_AT,
    ...(checkpoint === undefined ? {} : { statedOf: checkpoint }),
  })
  const bundle = bundleOf(signed, entry)
  changes.bundle?.(bundle)
  return bundle
}

function buildLeaf(changes: SigstoreChanges) {
  const { certificate, texts, subjectName, usages, timestamps } = changes
  const stated = Object.entries({ ...BUILDER.texts, ...texts }).flatMap(([arc, text]) =>
    text === null ? [] : [[arc, text] as const],
  )
  const parts = codeCertificateParts({
    authority: authority.key,
    key: leafKey,
    loggedAt: LOGGED_AT,
    builder: builderExtensions({
      workflow: subjectName ?? BUILDER.workflow,
      texts: Object.fromEntries(stated),
    }),
  })
  const [usage, codeSigning, ...others] = parts.extensions as [
    Uint8Array,
    Uint8Array,
    ...Uint8Array[],
  ]
  const given =
    typeof usages === 'string'
      ? [extension('2.5.29.37', { critical: false, value: Buffer.from(usages, 'hex') })]
      : usages === null
        ? []
        : [codeSigning]
  const whole = { ...parts, extensions: [usage, ...given, ...others], ...certificate }
  if (timestamps === null) return buildCertificate(whole)
  const timestamp = timestampExtension(buildCertificate(whole), {
    authority: authority.key,
    log: changes.timestampLog ?? certificateLogKey,
    ...(changes.timestampSigner === undefined ? {} : { signer: changes.timestampSigner }),
    loggedAt: LOGGED_AT,
    ...(timestamps === undefined ? {} : { changed: timestamps }),
  })
  const extensions = [...(whole.extensions ?? []), timestamp]
  return buildCertificate({ ...whole, extensions, ...changes.afterTimestamp })
}
