import { concatBytes, encodeUtf8 } from '../../bytes.ts'
import { formsOf } from '../../json/forms.ts'
import { type Json, type JsonObject, memberAt } from '../../json/value.ts'
import {
  blockedBy,
  createProviderChecks,
  established,
  notGiven,
  type ProviderCheck,
} from '../provider-checks.ts'
import { orRefuse } from '../provider-error.ts'
import { verifyTimestamp } from './certificate-log.ts'
import { isSignedWith } from './der-signature.ts'
import { verifyLogEntry, verifyLogInclusion } from './log-entry.ts'
import {
  type CodeBuilder,
  checkBuilder,
  readBuilder,
  verifySigningCertificate,
} from './signing-certificate.ts'
import { parseSigstoreBundle, readBundleJson, type SigstoreBundle } from './sigstore-bundle.ts'
import { refuseBundle, SIGSTORE_CHECKS, type SigstoreCheckName } from './sigstore-codes.ts'
import type { CodeIdentity, SigstoreTrust } from './sigstore-trust.ts'

export type SigstoreFacts = CodeBuilder & {
  /** SHA-256 of the artifact, hex. */
  readonly digest: string
  readonly predicateType: string
  readonly predicate: JsonObject
}

/** `facts` is null unless every check that was made passed. */
type SigstoreJudgement = {
  readonly facts: SigstoreFacts | null
  readonly checks: readonly ProviderCheck<SigstoreCheckName>[]
}

/**
 * Judges an attacker-controlled Sigstore bundle (its JSON value): did a workflow of the accepted
 * repository, at an accepted ref, sign a statement about an artifact, and does a trusted log have
 * the entry? Accept the bundle only if `requireChecks(checks)` returns. If `identity` is null, the
 * check "identity" is not made.
 *
 * It proves who built the artifact, as GitHub states, and that a public log has the build. It does
 * NOT prove that the artifact was made from the source, or that a log of certificates kept its
 * promise.
 */
export async function verifySigstoreBundle(
  json: Json,
  { identity, trust }: { readonly identity: CodeIdentity | null; readonly trust: SigstoreTrust },
): Promise<SigstoreJudgement> {
  const { make, list } = createProviderChecks(SIGSTORE_CHECKS)
  const bundle = await make('bundle', () => established(parseSigstoreBundle(json)))
  const log = await make('log entry', async () => {
    if (bundle === null) return blockedBy('bundle')
    const { integratedTime, logIndex } = bundle.entry
    const at = isoOf(integratedTime * 1000)
    return established(await verifyLogEntry(bundle, trust), `number ${logIndex}, at ${at}`)
  })
  const included = await make('log inclusion', async () => {
    if (bundle === null || log === null) return blockedBy('log entry')
    await verifyLogInclusion(bundle.entry, log)
    return established(true, `of ${bundle.entry.proof.size} entries`)
  })
  const certificate = await make('certificate', async () => {
    if (bundle === null || log === null) return blockedBy('log entry')
    const atMs = bundle.entry.integratedTime * 1000
    return established(await verifySigningCertificate(bundle.certificate, { ...trust, atMs }))
  })
  const signed = await make('signature', async () => {
    if (bundle === null || certificate === null) return blockedBy('certificate')
    if (!(await isSignedWith(certificate.key, bundle.signature, paeOf(bundle))))
      throw refuseBundle('envelope_signature', 'expected a statement that the key signed')
    return established(bundle)
  })
  let builder: CodeBuilder | null = null
  await make('identity', () => {
    if (certificate === null) return blockedBy('certificate')
    const found = readBuilder(certificate)
    if (identity !== null) checkBuilder(found, identity)
    builder = found
    return identity === null
      ? notGiven('an accepted repository was')
      : established(found, found.workflow)
  })
  const statement = await make('statement', () => {
    if (signed === null) return blockedBy('signature')
    const read = readStatement(signed, identity?.digests ?? null)
    return established(read, `artifact ${read.digest}`)
  })
  const logged = await make('certificate log', async () => {
    if (certificate === null) return blockedBy('certificate')
    const timeMs = await verifyTimestamp(certificate.fields, certificate.issuerKey, trust)
    return established(true, `promised at ${isoOf(timeMs)}`)
  })
  const checks = list()
  if (!included || !logged || builder === null || statement === null) return { facts: null, checks }
  const found: CodeBuilder = builder
  return { facts: { ...found, ...statement }, checks }
}

/** The last time of a Date, Unix milliseconds. */
const DATE_MS_MAX = 8.64e15

function isoOf(timeMs: number): string {
  return new Date(Math.min(timeMs, DATE_MS_MAX)).toISOString()
}

const PAYLOAD_TYPE = 'application/vnd.in-toto+json'

/** The bytes that the signature of a DSSE envelope covers (github.com/secure-systems-lab/dsse). */
function paeOf({ payloadType, payload }: SigstoreBundle): Uint8Array {
  const type = encodeUtf8(payloadType)
  const head = `DSSEv1 ${type.length} ${payloadType} ${payload.length} `
  return concatBytes(encodeUtf8(head), payload)
}

const { arrayOf, hexOf, invalid, objectOf, textOf } = formsOf('statement_malformed')

function readStatement(
  { payloadType, payload }: SigstoreBundle,
  digests: CodeIdentity['digests'],
): Pick<SigstoreFacts, 'digest' | 'predicateType' | 'predicate'> {
  const statement = readBundleJson(payload, 'statement_malformed')
  const read = orRefuse(refuseBundle, 'statement_malformed', () => {
    if (payloadType !== PAYLOAD_TYPE || memberAt(statement, '_type') !== STATEMENT_TYPE)
      throw invalid('the payload', `a statement of type ${STATEMENT_TYPE}`)
    const subjects = arrayOf(memberAt(statement, 'subject'), 'subject', { min: 1, max: 1 })
    return {
      digest: hexOf(memberAt(subjects[0], 'digest', 'sha256'), 'the digest', 32),
      predicateType: textOf(memberAt(statement, 'predicateType'), 'predicateType'),
      predicate: objectOf(memberAt(statement, 'predicate'), 'predicate'),
    }
  })
  if (digests !== null && !digests.includes(read.digest))
    throw refuseBundle('artifact_not_accepted', 'expected an accepted artifact')
  return read
}

const STATEMENT_TYPE = 'https://in-toto.io/Statement/v1'
