import { createHash, createSign } from 'node:crypto'
import { encodeBase64 } from '#attestation/bytes.ts'
import { canonicalizeJson } from '#attestation/json/canonical.ts'
import type { Json, JsonObject } from '#attestation/json/value.ts'
import { decodeDer } from '#attestation/nitro/der.ts'
import {
  type CertificateParts,
  certificateParts,
  developmentName,
  extension,
  KEY_USAGE_BITS,
  keyUsage,
  publicKeyInfo,
  type SigningKey,
  toPem,
} from '../x509/certificate-builder.ts'
import { encodeDer, octetString, sequence, utf8String } from '../x509/der-encoder.ts'

/** Replaces Sigstore's Fulcio. */
export const CODE_AUTHORITY = developmentName('development Fulcio')

/** Fulcio's extensions with GitHub's claims. The keys of `texts` are the last arcs of the OIDs. */
export function builderExtensions({
  workflow,
  texts,
}: {
  readonly workflow: string
  readonly texts: Readonly<Record<string, string>>
}): readonly Uint8Array[] {
  const fulcio = (arc: string, value: Uint8Array) =>
    extension(`1.3.6.1.4.1.57264.1.${arc}`, { critical: false, value })
  return [
    extension('2.5.29.17', {
      critical: true,
      value: sequence(encodeDer(0x86, Buffer.from(workflow))),
    }),
    fulcio('1', Buffer.from('a text that is not DER')),
    ...Object.entries(texts).map(([arc, text]) => fulcio(arc, utf8String(text))),
  ]
}

/** Returns the input of builderExtensions for a repository and a ref. */
export function builderOf(repository: string, ref: string) {
  const source = `https://github.com/${repository}`
  return {
    workflow: `${source}/.github/workflows/build.yml@${ref}`,
    texts: {
      8: 'https://token.actions.githubusercontent.com',
      12: source,
      13: 'c0'.repeat(20),
      14: ref,
    },
  }
}

/** extKeyUsage: only code signing. */
const CODE_SIGNING = Buffer.from('300a06082b06010505070303', 'hex')

/** Valid for ten minutes around `loggedAt`. */
export function codeCertificateParts({
  authority,
  key,
  loggedAt,
  builder,
}: {
  readonly authority: SigningKey
  readonly key: SigningKey
  readonly loggedAt: Date
  readonly builder: readonly Uint8Array[]
}): CertificateParts & { readonly extensions: readonly Uint8Array[] } {
  const after = (seconds: number) => new Date(loggedAt.getTime() + seconds * 1000)
  return certificateParts({
    serial: 0x72,
    issuer: { name: CODE_AUTHORITY, key: authority },
    life: { from: after(-60), to: after(540) },
    subject: sequence(),
    key,
    extensions: [
      keyUsage(KEY_USAGE_BITS.digitalSignature),
      extension('2.5.29.37', { critical: false, value: CODE_SIGNING }),
      ...builder,
    ],
  })
}

/**
 * The extension with a timestamp of a log of certificates. `certificate` is the certificate without
 * this extension. `changed` changes the list before it is written.
 */
export function timestampExtension(
  certificate: Uint8Array,
  {
    authority,
    log,
    signer = log,
    loggedAt,
    changed = (list) => list,
  }: {
    readonly authority: SigningKey
    readonly log: SigningKey
    readonly signer?: SigningKey
    readonly loggedAt: Date
    readonly changed?: (list: Buffer) => Uint8Array
  },
): Uint8Array {
  const [tbs] = decodeDer(new Uint8Array(certificate)).children
  const time = Buffer.alloc(8)
  time.writeBigUInt64BE(BigInt(loggedAt.getTime()))
  const size = (bytes: Uint8Array, width: number) => {
    const length = Buffer.alloc(width)
    length.writeUIntBE(bytes.length, 0, width)
    return Buffer.concat([length, bytes])
  }
  const signature = signDer(
    signer,
    Buffer.concat([
      Buffer.of(0, 0),
      time,
      Buffer.of(0, 1),
      hash(publicKeyInfo(authority)),
      size(tbs?.encoding ?? new Uint8Array(), 3),
      Buffer.of(0, 0),
    ]),
  )
  const timestamp = [Buffer.of(0), hash(publicKeyInfo(log)), time, Buffer.of(0, 0, 4, 3)]
  const list = size(size(Buffer.concat([...timestamp, size(signature, 2)]), 2), 2)
  const value = octetString(changed(list))
  return extension('1.3.6.1.4.1.11129.2.4.2', { critical: false, value })
}

type SignedStatement = {
  readonly certificate: Uint8Array
  readonly payloadType: string
  readonly payload: Uint8Array
  readonly signature: Uint8Array
}

export const STATEMENT_PAYLOAD = 'application/vnd.in-toto+json'

/** Signs a DSSE envelope. */
export function signStatement(
  statement: Json,
  {
    key,
    certificate,
    payloadType,
  }: {
    readonly key: SigningKey
    readonly certificate: Uint8Array
    readonly payloadType: string
  },
): SignedStatement {
  const payload = Buffer.from(JSON.stringify(statement))
  const head = `DSSEv1 ${payloadType.length} ${payloadType} ${payload.length} `
  const signature = signDer(key, Buffer.concat([Buffer.from(head), payload]))
  return { certificate, payloadType, payload, signature }
}

/** The log's record of a statement. */
export function entryBodyOf({ certificate, payload, signature }: SignedStatement): JsonObject {
  return {
    apiVersion: '0.0.1',
    kind: 'dsse',
    spec: {
      envelopeHash: { algorithm: 'sha256', value: '00'.repeat(32) },
      payloadHash: { algorithm: 'sha256', value: hash(payload).toString('hex') },
      signatures: [
        {
          signature: encodeBase64(signature),
          verifier: encodeBase64(Buffer.from(toPem(certificate))),
        },
      ],
    },
  }
}

/** The log's id is the hash of `id`. The other keys sign. */
type LogKeys = {
  readonly id: SigningKey
  readonly promise: SigningKey
  readonly checkpoint: SigningKey
}

/**
 * Returns the second entry of a log with two entries. `statedOf` changes the text of the checkpoint
 * before it is signed.
 */
export function buildLogEntry(
  body: Json,
  {
    keys,
    loggedAt,
    statedOf = (text) => text,
  }: {
    readonly keys: LogKeys
    readonly loggedAt: Date
    readonly statedOf?: (text: string) => string
  },
) {
  const entry = Buffer.from(JSON.stringify(body))
  const logId = hash(publicKeyInfo(keys.id))
  const logIndex = 41
  const integratedTime = Math.floor(loggedAt.getTime() / 1000)
  const promised = canonicalizeJson({
    body: encodeBase64(entry),
    integratedTime,
    logID: logId.toString('hex'),
    logIndex,
  })
  const sibling = hash(Buffer.from('another entry'))
  const root = hash(Buffer.of(1), sibling, hash(Buffer.of(0), entry))
  const stated = statedOf(`log.example - 1\n2\n${encodeBase64(root)}\n`)
  const signature = signDer(keys.checkpoint, Buffer.from(stated))
  const line = encodeBase64(Buffer.concat([logId.subarray(0, 4), signature]))
  return {
    logIndex: String(logIndex),
    logId: { keyId: encodeBase64(logId) },
    kindVersion: { kind: 'dsse', version: '0.0.1' },
    integratedTime: String(integratedTime),
    inclusionPromise: {
      signedEntryTimestamp: encodeBase64(signDer(keys.promise, Buffer.from(promised))),
    },
    inclusionProof: {
      logIndex: '1',
      rootHash: encodeBase64(root),
      treeSize: '2',
      hashes: [encodeBase64(sibling)],
      checkpoint: { envelope: `${stated}\n\u2014 log.example ${line}\n` },
    },
    canonicalizedBody: encodeBase64(entry),
  }
}

export function bundleOf(
  { certificate, payload, payloadType, signature }: SignedStatement,
  entry: ReturnType<typeof buildLogEntry>,
) {
  return {
    mediaType: 'application/vnd.dev.sigstore.bundle.v0.3+json',
    verificationMaterial: {
      tlogEntries: [entry],
      timestampVerificationData: {},
      certificate: { rawBytes: encodeBase64(certificate) },
    },
    dsseEnvelope: {
      payload: encodeBase64(payload),
      payloadType,
      signatures: [{ sig: encodeBase64(signature) }],
    },
  }
}

/** `digest`: SHA-256 of the artifact, hex. */
export function buildStatement(
  digest: string,
  { predicate, predicateType }: { readonly predicate: Json; readonly predicateType: string },
): JsonObject {
  return {
    _type: 'https://in-toto.io/Statement/v1',
    subject: [{ name: 'deployment.json', digest: { sha256: digest } }],
    predicateType,
    predicate,
  }
}

function signDer({ privateKey }: SigningKey, data: Uint8Array): Buffer {
  return createSign('sha256').update(data).sign(privateKey)
}

function hash(...parts: readonly Uint8Array[]): Buffer {
  return createHash('sha256').update(Buffer.concat(parts)).digest()
}
