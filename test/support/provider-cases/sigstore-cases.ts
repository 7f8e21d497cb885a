import type { SigstoreCode } from '#attestation/providers/sigstore/sigstore-codes.ts'
import type { CodeIdentity } from '#attestation/providers/sigstore/sigstore-trust.ts'
import { generateKey, nameOf, signWith, validityOf } from '../nitro-builder/certificate-builder.ts'
import { MADE_AT } from '../nitro-builder/development-pki.ts'
import { DIGEST, type SigstoreChanges, statementOf } from '../provider-builder/sigstore-builder.ts'

/** A bundle that breaks one rule, and the code of its refusal. */
export type SigstoreRefusal = {
  readonly code: SigstoreCode
  readonly name: string
  readonly changes?: SigstoreChanges
  readonly identity?: Partial<CodeIdentity>
}

const other = generateKey('P-256')

export const sigstoreRefusals: readonly SigstoreRefusal[] = [
  {
    code: 'bundle_malformed',
    name: 'another version',
    changes: { bundle: (one) => Object.assign(one, { mediaType: 'application/json' }) },
  },
  {
    code: 'bundle_malformed',
    name: 'a log index that is no text',
    changes: { bundle: (one) => entryOf(one, { logIndex: 41 }) },
  },
  {
    code: 'bundle_entries',
    name: 'two signatures',
    changes: { bundle: (one) => one.dsseEnvelope.signatures.push({ sig: 'AA==' }) },
  },
  {
    code: 'bundle_entries',
    name: 'no entry',
    changes: { bundle: (one) => one.verificationMaterial.tlogEntries.pop() },
  },
  {
    code: 'log_unknown',
    name: 'an entry of another log',
    changes: {
      bundle: (one) => entryOf(one, { logId: { keyId: Buffer.alloc(32).toString('base64') } }),
    },
  },
  {
    code: 'entry_promise',
    name: 'a promise by another key',
    changes: { logSigner: other },
  },
  {
    code: 'entry_promise',
    name: 'another time than the promised one',
    changes: { bundle: (one) => entryOf(one, { integratedTime: '1' }) },
  },
  {
    code: 'entry_kind',
    name: 'an entry of another kind',
    changes: {
      bundle: (one) => entryOf(one, { kindVersion: { kind: 'intoto', version: '0.0.2' } }),
    },
  },
  {
    code: 'entry_mismatch',
    name: 'the entry of another statement',
    changes: { body: (body) => Object.assign(body, { spec: {} }) },
  },
  {
    code: 'checkpoint_malformed',
    name: 'a head without signatures',
    changes: { bundle: (one) => checkpointOf(one, 'log.example\n2\nAA==\n') },
  },
  {
    code: 'checkpoint_signature',
    name: 'a head by another key',
    changes: { checkpointSigner: other },
  },
  {
    code: 'checkpoint_mismatch',
    name: 'a head of another size',
    changes: { checkpoint: (text) => text.replace('\n2\n', '\n3\n') },
  },
  {
    code: 'not_included',
    name: 'a path from another entry',
    changes: {
      bundle: (one) => {
        const [entry] = one.verificationMaterial.tlogEntries
        entry.inclusionProof.hashes[0] = Buffer.alloc(32).toString('base64')
      },
    },
  },
  {
    code: 'authority_unknown',
    name: 'a certificate of another issuer',
    changes: { certificate: { issuer: nameOf('another authority') } },
  },
  {
    code: 'signing_certificate',
    name: 'a certificate by another key',
    changes: { certificate: { sign: signWith(generateKey()) } },
  },
  {
    code: 'signing_certificate',
    name: 'a certificate that ended before the entry',
    changes: {
      certificate: {
        validity: validityOf(
          new Date(MADE_AT.getTime() - 7_200_000),
          new Date(MADE_AT.getTime() - 3_700_000),
        ),
      },
    },
  },
  { code: 'signing_usage', name: 'a certificate without a purpose', changes: { usages: null } },
  {
    code: 'signing_usage',
    name: 'a certificate for servers',
    changes: { usages: '300a06082b06010505070301' },
  },
  {
    code: 'envelope_signature',
    name: 'a statement by another key',
    changes: { envelopeSigner: other },
  },
  { code: 'identity_malformed', name: 'no ref', changes: { texts: { 14: null } } },
  {
    code: 'identity_issuer',
    name: 'an identity of another service',
    changes: { texts: { 8: 'https://accounts.example' } },
  },
  {
    code: 'identity_workflow',
    name: "another repository's workflow",
    changes: {
      subjectName: 'https://github.com/other/model/.github/workflows/build.yml@refs/tags/v1.0.0',
    },
  },
  {
    code: 'identity_workflow',
    name: 'a workflow at another ref',
    changes: {
      subjectName: 'https://github.com/example/model/.github/workflows/build.yml@refs/heads/main',
    },
  },
  {
    code: 'identity_repository',
    name: 'a build of another repository',
    identity: { repository: 'example/other' },
  },
  {
    code: 'identity_ref',
    name: 'a build of another tag',
    identity: { refs: ['refs/tags/v1.0.0-rc', 'refs/tags/v1.0'] },
  },
  {
    code: 'statement_malformed',
    name: 'another statement',
    changes: { statement: { _type: 'https://in-toto.io/Statement/v0.1' } },
  },
  {
    code: 'statement_malformed',
    name: 'another type of payload',
    changes: { payloadType: 'text/plain' },
  },
  {
    code: 'statement_malformed',
    name: 'two subjects',
    changes: { statement: twoSubjects() },
  },
  {
    code: 'artifact_not_accepted',
    name: 'an artifact that is not listed',
    identity: { digests: ['cd'.repeat(32)] },
  },
]

/** Bundles at the edge of a rule that are still accepted. */
export const sigstoreAcceptances: readonly Omit<SigstoreRefusal, 'code'>[] = [
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
