import type { SigstoreCode } from '#attestation/providers/sigstore/sigstore-codes.ts'
import type { CodeIdentity } from '#attestation/providers/sigstore/sigstore-trust.ts'
import { casesOf, nearly } from '../case-table.ts'
import { generateKey, nameOf, signWith, validityOf } from '../nitro-builder/certificate-builder.ts'
import { MADE_AT } from '../nitro-builder/development-pki.ts'
import { DIGEST, type SigstoreChanges, statementOf } from '../provider-builder/sigstore-builder.ts'

type SigstoreCase = SigstoreChanges & { readonly identity?: Partial<CodeIdentity> }

const other = generateKey('P-256')
const base64 = (bytes: Uint8Array) => Buffer.from(bytes).toString('base64')

/** Bundles that break one rule, by the code of the refusal. */
export const sigstoreRefusals = casesOf<'code', SigstoreCode, SigstoreCase>('code', {
  bundle_malformed: {
    'another version': { bundle: (one) => Object.assign(one, { mediaType: 'application/json' }) },
    'a log index that is no text': { bundle: (one) => entryOf(one, { logIndex: 41 }) },
  },
  bundle_entries: {
    'two signatures': { bundle: (one) => one.dsseEnvelope.signatures.push({ sig: 'AA==' }) },
    'no entry': { bundle: (one) => one.verificationMaterial.tlogEntries.pop() },
  },
  log_unknown: {
    'an entry of another log': {
      bundle: (one) => {
        const { logId } = one.verificationMaterial.tlogEntries[0]
        logId.keyId = base64(nearly(Buffer.from(logId.keyId, 'base64')))
      },
    },
  },
  entry_promise: {
    'a promise by another key': { logSigner: other },
    'another time than the promised one': {
      bundle: (one) => entryOf(one, { integratedTime: '1' }),
    },
  },
  entry_kind: {
    'an entry of another kind': {
      bundle: (one) => entryOf(one, { kindVersion: { kind: 'intoto', version: '0.0.2' } }),
    },
  },
  entry_mismatch: {
    'the entry of another statement': { body: (body) => Object.assign(body, { spec: {} }) },
  },
  checkpoint_malformed: {
    'a head without signatures': { bundle: (one) => checkpointOf(one, 'log.example\n2\nAA==\n') },
  },
  checkpoint_signature: {
    'a head by another key': { checkpointSigner: other },
    'a head by a key whose hint differs in its last bit': {
      bundle: (one) => {
        const { checkpoint } = one.verificationMaterial.tlogEntries[0].inclusionProof
        checkpoint.envelope = checkpoint.envelope.replace(/\S+(?=\n$)/, (signature: string) =>
          base64(nearly(Buffer.from(signature, 'base64'), 3)),
        )
      },
    },
  },
  checkpoint_mismatch: {
    'a head of another size': { checkpoint: (text) => text.replace('\n2\n', '\n3\n') },
  },
  not_included: {
    'a path from another entry': {
      bundle: (one) => {
        const [entry] = one.verificationMaterial.tlogEntries
        entry.inclusionProof.hashes[0] = Buffer.alloc(32).toString('base64')
      },
    },
  },
  authority_unknown: {
    'a certificate of another issuer': { certificate: { issuer: nameOf('another authority') } },
  },
  signing_certificate: {
    'a certificate by another key': { certificate: { sign: signWith(generateKey()) } },
    'a certificate that ended before the entry': {
      certificate: {
        validity: validityOf(
          new Date(MADE_AT.getTime() - 7_200_000),
          new Date(MADE_AT.getTime() - 3_700_000),
        ),
      },
    },
  },
  signing_usage: {
    'a certificate without a purpose': { usages: null },
    'a certificate for servers': { usages: '300a06082b06010505070301' },
  },
  envelope_signature: { 'a statement by another key': { envelopeSigner: other } },
  identity_malformed: { 'no ref': { texts: { 14: null } } },
  identity_issuer: {
    'an identity of another service': { texts: { 8: 'https://accounts.example' } },
  },
  identity_workflow: {
    "another repository's workflow": {
      subjectName: 'https://github.com/other/model/.github/workflows/build.yml@refs/tags/v1.0.0',
    },
    'a workflow at another ref': {
      subjectName: 'https://github.com/example/model/.github/workflows/build.yml@refs/heads/main',
    },
  },
  identity_repository: {
    'a build of another repository': { identity: { repository: 'example/other' } },
  },
  identity_ref: {
    'a build of another tag': { identity: { refs: ['refs/tags/v1.0.0-rc', 'refs/tags/v1.0'] } },
  },
  statement_malformed: {
    'another statement': { statement: { _type: 'https://in-toto.io/Statement/v0.1' } },
    'another type of payload': { payloadType: 'text/plain' },
    'two subjects': { statement: twoSubjects() },
  },
  timestamp_missing: { 'a certificate without a timestamp': { timestamps: null } },
  timestamp_malformed: {
    'a list without its length': { timestamps: (list) => list.subarray(2) },
    'a byte after the list': { timestamps: (list) => Buffer.concat([list, Buffer.of(0)]) },
    'a timestamp of version 2': { timestamps: (list) => list.fill(1, 4, 5) },
  },
  timestamp_log_unknown: {
    'a timestamp of another log': { timestampLog: other },
    'an empty list': { timestamps: () => Buffer.of(0, 0) },
  },
  timestamp_signature: {
    'a timestamp by another key': { timestampSigner: other },
    'a timestamp of another time': { timestamps: (list) => list.fill(9, 44, 45) },
    'a timestamp of another certificate': {
      afterTimestamp: { validity: validityOf(new Date(0), new Date('2030-01-01T00:00:00Z')) },
    },
    'another algorithm than ECDSA with SHA-256': { timestamps: (list) => list.fill(5, 47, 48) },
  },
  artifact_not_accepted: {
    'an artifact that is not listed': { identity: { digests: ['cd'.repeat(32)] } },
  },
})

/** Bundles at the edge of a rule that are still accepted. */
export const sigstoreAcceptances: readonly (SigstoreCase & { readonly name: string })[] = [
  { name: 'a listed tag' },
  { name: 'any tag', identity: { refs: ['refs/tags/*'] } },
  { name: 'a listed artifact', identity: { digests: [DIGEST] } },
]

// biome-ignore lint/suspicious/noExplicitAny: a bundle with any member broken
function entryOf(bundle: any, changed: object): void {
  Object.assign(bundle.verificationMaterial.tlogEntries[0], changed)
}

// biome-ignore lint/suspicious/noExplicitAny: as above
function checkpointOf(bundle: any, envelope: string): void {
  bundle.verificationMaterial.tlogEntries[0].inclusionProof.checkpoint = { envelope }
}

function twoSubjects() {
  const subject = { name: 'a', digest: { sha256: DIGEST } }
  return { ...Object(statementOf({})), subject: [subject, subject] }
}
