import { createHash, createSign } from 'node:crypto'
import { canonicalizeJson } from '../../../attestation/json/canonical.ts'
import type { Json } from '../../../attestation/json/value.ts'
import type {
  CodeIdentity,
  SigstoreTrust,
} from '../../../attestation/providers/sigstore/sigstore-trust.ts'
import {
  authorityConstraints,
  buildCertificate,
  type CertificateParts,
  ECDSA_SHA384,
  extension,
  generateKey,
  KEY_USAGE_BITS,
  type KeyPair,
  keyUsage,
  nameOf,
  publicKeyInfo,
  signWith,
  VERSION_3,
  validityOf,
} from '../nitro-builder/certificate-builder.ts'
import { encodeDer, integer, sequence, utf8String } from '../nitro-builder/der-encoder.ts'
import { MADE_AT } from '../nitro-builder/development-pki.ts'

/** Everything of a bundle that a test can change, so that one rule is broken. */
export type SigstoreChanges = {
  readonly certificate?: Partial<CertificateParts>
  /** Fulcio's texts by the last arc of their type. */
  readonly texts?: Readonly<Record<number, string | null>>
  readonly subjectName?: string
  readonly usages?: string | null
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

const authorityKey = generateKey()
const leafKey = generateKey('P-256')
const logKey = generateKey('P-256')
const AUTHORITY = nameOf('development Fulcio')
const MINUTE_MS = 60_000
const YEAR_MS = 365 * 24 * 60 * MINUTE_MS
const INTEGRATED_SECONDS = Math.floor(MADE_AT.getTime() / 1000) - 3_600

const common = { version: VERSION_3, innerAlgorithm: ECDSA_SHA384, issuer: AUTHORITY }
const signed = { extraFields: [], outerAlgorithm: ECDSA_SHA384, sign: signWith(authorityKey) }

const authority = buildCertificate({
  ...common,
  serial: integer(0x71),
  validity: validityOf(
    new Date(MADE_AT.getTime() - YEAR_MS),
    new Date(MADE_AT.getTime() + YEAR_MS),
  ),
  subject: AUTHORITY,
  publicKey: publicKeyInfo(authorityKey),
  extensions: [authorityConstraints(0), keyUsage(KEY_USAGE_BITS.keyCertSign)],
  ...signed,
})

/** Trusts the development authority and the development log. */
export const DEVELOPMENT_SIGSTORE: SigstoreTrust = {
  authorities: [authority],
  logs: [publicKeyInfo(logKey)],
}

const WORKFLOW = 'https://github.com/example/model/.github/workflows/build.yml@refs/tags/v1.0.0'
const TEXTS: Readonly<Record<number, string>> = {
  8: 'https://token.actions.githubusercontent.com',
  12: 'https://github.com/example/model',
  13: 'c0'.repeat(20),
  14: 'refs/tags/v1.0.0',
}
const CODE_SIGNING = '300a06082b06010505070303'

export const DIGEST = 'ab'.repeat(32)

/** A statement of a build with this predicate. */
export function statementOf(predicate: Json, predicateType = PREDICATE): Json {
  const subject = [{ name: 'deployment.json', digest: { sha256: DIGEST } }]
  return { _type: 'https://in-toto.io/Statement/v1', subject, predicateType, predicate }
}

const PREDICATE = 'https://tinfoil.sh/predicate/snp-tdx-multiplatform/v1'

/** A bundle as Sigstore makes it, but for the changes. */
export function buildSigstoreBundle(changes: SigstoreChanges = {}): Json {
  const certificate = buildLeaf(changes)
  const payload = Buffer.from(JSON.stringify(changes.statement ?? statementOf({ some: 'thing' })))
  const payloadType = changes.payloadType ?? 'application/vnd.in-toto+json'
  const head = `DSSEv1 ${payloadType.length} ${payloadType} ${payload.length} `
  const sig = signDer(
    changes.envelopeSigner ?? leafKey,
    Buffer.concat([Buffer.from(head), payload]),
  )
  const bundle = {
    mediaType: 'application/vnd.dev.sigstore.bundle.v0.3+json',
    verificationMaterial: {
      tlogEntries: [buildEntry({ certificate, payload, sig }, changes)],
      timestampVerificationData: {},
      certificate: { rawBytes: base64(certificate) },
    },
    dsseEnvelope: { payload: base64(payload), payloadType, signatures: [{ sig: base64(sig) }] },
  }
  changes.bundle?.(bundle)
  return bundle
}

function buildLeaf({
  certificate,
  texts,
  subjectName = WORKFLOW,
  usages = CODE_SIGNING,
}: SigstoreChanges) {
  const stated = Object.entries({ ...TEXTS, ...texts }).flatMap(([arc, text]) =>
    text === null ? [] : [fulcio(arc, utf8String(text))],
  )
  return buildCertificate({
    ...common,
    serial: integer(0x72),
    validity: validityOf(
      new Date((INTEGRATED_SECONDS - 60) * 1000),
      new Date((INTEGRATED_SECONDS + 540) * 1000),
    ),
    subject: sequence(),
    publicKey: publicKeyInfo(leafKey),
    extensions: [
      keyUsage(KEY_USAGE_BITS.digitalSignature),
      ...(usages === null
        ? []
        : [extension('2.5.29.37', { critical: false, value: Buffer.from(usages, 'hex') })]),
      extension('2.5.29.17', {
        critical: true,
        value: sequence(encodeDer(0x86, Buffer.from(subjectName))),
      }),
      fulcio('1', Buffer.from('a text that is not DER')),
      ...stated,
    ],
    ...signed,
    ...certificate,
  })
}

function fulcio(arc: string, value: Uint8Array): Uint8Array {
  return extension(`1.3.6.1.4.1.57264.1.${arc}`, { critical: false, value })
}

type Signed = {
  readonly certificate: Uint8Array
  readonly payload: Uint8Array
  readonly sig: Uint8Array
}

function buildEntry({ certificate, payload, sig }: Signed, changes: SigstoreChanges) {
  const pem = `-----BEGIN CERTIFICATE-----\n${(base64(certificate).match(/.{1,64}/g) ?? []).join('\n')}\n-----END CERTIFICATE-----\n`
  const body: Record<string, Json> = {
    apiVersion: '0.0.1',
    kind: 'dsse',
    spec: {
      envelopeHash: { algorithm: 'sha256', value: '00'.repeat(32) },
      payloadHash: { algorithm: 'sha256', value: hash(payload).toString('hex') },
      signatures: [{ signature: base64(sig), verifier: base64(Buffer.from(pem)) }],
    },
  }
  changes.body?.(body)
  const entry = Buffer.from(JSON.stringify(body))
  const logId = hash(publicKeyInfo(logKey))
  const logIndex = 41
  const promised = canonicalizeJson({
    body: base64(entry),
    integratedTime: INTEGRATED_SECONDS,
    logID: logId.toString('hex'),
    logIndex,
  })
  const leaf = hash(Buffer.concat([Buffer.of(0), entry]))
  const sibling = hash(Buffer.from('another entry'))
  const root = hash(Buffer.concat([Buffer.of(1), sibling, leaf]))
  return {
    logIndex: String(logIndex),
    logId: { keyId: base64(logId) },
    kindVersion: { kind: 'dsse', version: '0.0.1' },
    integratedTime: String(INTEGRATED_SECONDS),
    inclusionPromise: {
      signedEntryTimestamp: base64(signDer(changes.logSigner ?? logKey, Buffer.from(promised))),
    },
    inclusionProof: {
      logIndex: '1',
      rootHash: base64(root),
      treeSize: '2',
      hashes: [base64(sibling)],
      checkpoint: { envelope: buildCheckpoint(root, logId, changes) },
    },
    canonicalizedBody: base64(entry),
  }
}

function buildCheckpoint(root: Buffer, logId: Buffer, changes: SigstoreChanges): string {
  const text = `log.example - 1\n2\n${base64(root)}\n`
  const stated = changes.checkpoint?.(text) ?? text
  const signature = signDer(changes.checkpointSigner ?? logKey, Buffer.from(stated))
  const line = base64(Buffer.concat([logId.subarray(0, 4), signature]))
  return `${stated}\n\u2014 log.example ${line}\n`
}

function signDer({ privateKey }: KeyPair, data: Uint8Array): Buffer {
  return createSign('sha256').update(data).sign(privateKey)
}

function hash(bytes: Uint8Array): Buffer {
  return createHash('sha256').update(bytes).digest()
}

function base64(bytes: Uint8Array): string {
  return Buffer.from(bytes).toString('base64')
}
