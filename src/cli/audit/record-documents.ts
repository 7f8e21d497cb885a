import { hash } from 'node:crypto'
import { decodeBase64, encodeHex, equalBytes } from '../../../attestation/bytes.ts'
import { digestBootConfiguration } from '../../../attestation/evidence/boot-configuration.ts'
import { findExpectedCode } from '../../../attestation/evidence/document-checks.ts'
import { AttestationError } from '../../../attestation/nitro/attestation-error.ts'
import { type AttestationDocument, decodeAttestationPayload } from '../../../attestation/nitro/document.ts'
import { FUTURE_SKEW_MS_DEFAULT } from '../../../attestation/nitro/policy.ts'
import type { AttestationVerifier } from '../../../attestation/nitro/verify-attestation.ts'
import type { Release } from '../../../attestation/release/release.ts'
import type { ServedLog } from './answers.ts'
import type { AuditScope } from './expectations.ts'
import type { FindingCode } from './findings.ts'

/** Documents that are remembered: an enclave renews its own every few hours. */
export const DOCUMENTS_MAX = 1_000

/** What is wrong with a document. */
export type DocumentFault = { readonly code: FindingCode; readonly message: string }

/** What one attestation document says, judged once. */
export type DocumentVerdict = {
  /** SHA-256 of the document, hex. */
  readonly digest: string
  readonly faults: readonly DocumentFault[]
  /** The release that the document is of; null when none is expected, or it is faulty. */
  readonly release: Release | null
  /** When completions may finish under it, Unix milliseconds; null when it is not genuine. */
  readonly validMs: { readonly from: number; readonly to: number } | null
}

/** Judges the documents of one log's records, each once. `decode` is the library's, but remembers. */
export type DocumentJudge = {
  decode(document: Uint8Array): AttestationDocument
  judge(base64: string): Promise<DocumentVerdict>
}

/** Gives a judge for the documents of `log`. */
export function createDocumentJudge(
  log: ServedLog,
  given: { readonly scope: AuditScope; readonly verifier: AttestationVerifier },
): DocumentJudge {
  const verdicts = new Map<string, Promise<DocumentVerdict>>()
  const decoded = new Map<string, AttestationDocument>()
  return {
    decode: (document) =>
      remember(decoded, hash('sha256', document), () => decodeAttestationPayload(document)),
    judge: (base64) => remember(verdicts, hash('sha256', base64), () => judgeDocument(base64, log, given)),
  }
}

function remember<Value>(known: Map<string, Value>, key: string, make: () => Value): Value {
  const value = known.get(key) ?? make()
  known.set(key, value)
  const [oldest] = known.keys()
  if (known.size > DOCUMENTS_MAX && oldest !== undefined) known.delete(oldest)
  return value
}

async function judgeDocument(
  base64: string,
  log: ServedLog,
  { scope, verifier }: { readonly scope: AuditScope; readonly verifier: AttestationVerifier },
): Promise<DocumentVerdict> {
  const { roots, allowDebug, revoked } = scope.policy
  const bytes = decodeBase64(base64)
  const digest = hash('sha256', bytes)
  const policy = {
    measurements: 'any',
    mode: 'historical',
    ...(roots && { roots }),
    ...(allowDebug !== undefined && { allowDebug }),
    ...(revoked && { revoked }),
  } as const
  try {
    const facts = await verifier.verify(bytes, policy, new Date(0))
    const endMs = Math.min(...facts.certificates.map(({ notAfterMs }) => notAfterMs))
    const document = decodeAttestationPayload(bytes)
    const code = compareMeasurements(document, scope)
    return {
      digest,
      faults: [...compareConfiguration(document, log), ...code.faults],
      release: code.release,
      validMs: { from: facts.timestampMs - FUTURE_SKEW_MS_DEFAULT, to: endMs },
    }
  } catch (fault) {
    if (!(fault instanceof AttestationError)) throw fault
    const message = `${fault.code}: ${fault.message}`
    return { digest, faults: [{ code: 'attestation_invalid', message }], release: null, validMs: null }
  }
}

function compareConfiguration(document: AttestationDocument, log: ServedLog): readonly DocumentFault[] {
  const digest = digestBootConfiguration(log.bootConfiguration)
  if (document.userData !== null && equalBytes(document.userData, digest)) return []
  const message = `the document does not name the log's boot configuration, ${encodeHex(digest)}`
  return [{ code: 'configuration_mismatch', message }]
}

function compareMeasurements(
  document: AttestationDocument,
  { policy }: AuditScope,
): Pick<DocumentVerdict, 'faults' | 'release'> {
  try {
    return { faults: [], release: findExpectedCode(document, policy)?.release ?? null }
  } catch (fault) {
    if (!(fault instanceof AttestationError)) throw fault
    return { faults: [{ code: 'measurements_unexpected', message: fault.message }], release: null }
  }
}
