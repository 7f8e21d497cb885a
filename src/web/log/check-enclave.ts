import { decodeBase64, encodeHex, equalBytes } from '#attestation/bytes.ts'
import { ProofError } from '#attestation/errors.ts'
import { digestBootConfiguration } from '#attestation/evidence/boot-configuration.ts'
import {
  checkDocumentKey,
  checkExpectedConfiguration,
  checkExpectedMeasurements,
  describeDocument,
} from '#attestation/evidence/document-checks.ts'
import type { BundlePolicy } from '#attestation/evidence/policy.ts'
import { type Attempt, attempt, type Check, check, need } from '#attestation/finding.ts'
import { type AttestationDocument, decodeAttestationPayload } from '#attestation/nitro/document.ts'
import type { AttestationFacts } from '#attestation/nitro/facts.ts'
import { verifyAttestation } from '#attestation/nitro/verify-attestation.ts'
import type { DescribedLog } from './answers.ts'

/** The result of comparing a running enclave's document with a log. */
export type EnclaveReport = {
  readonly checks: readonly Check<string>[]
  /** Present even if checks failed. Null when the document cannot be parsed. */
  readonly document: AttestationDocument | null
}

/**
 * `nonce`: the nonce of the request, or null. If `policy` accepts no code, the code is not
 * checked.
 */
export async function checkEnclaveDocument(
  log: DescribedLog,
  given: {
    /** Standard base64. */
    readonly document: string
    readonly nonce: Uint8Array | null
    readonly at: Date
    readonly policy: BundlePolicy
  },
): Promise<EnclaveReport> {
  const { nonce, at, policy } = given
  const bytes = attempt(() => decodeBase64(given.document))
  const document = attempt(() => decodeAttestationPayload(need(bytes)))
  const facts = await verifyNow(bytes, { policy, nonce, at })
  const configuration = digestBootConfiguration(log.boot_configuration)
  return {
    document: 'fault' in document ? null : document.value,
    checks: [
      check('attestation document', () => `valid: ${describeDocument(need(facts))}`),
      check('attestation key', () => checkDocumentKey(need(document), log.notary)),
      check('fresh', () =>
        nonce === null
          ? { notChecked: 'a document may be some hours old; you can ask for a new one' }
          : `it contains the number of this page, and was made at ${new Date(need(facts).timestampMs).toISOString()}`,
      ),
      check('boot configuration', () => {
        const { userData } = need(document)
        if (userData === null || !equalBytes(userData, configuration))
          throw new ProofError(
            'wrong_configuration',
            "expected the document's user_data to be the digest of the log's boot configuration",
          )
        return `SHA-256 ${encodeHex(configuration)}`
      }),
      check('measurements', () => checkExpectedMeasurements(document, { facts, policy })),
      check('expected configuration', () =>
        checkExpectedConfiguration(configuration, { document, policy }),
      ),
    ],
  }
}

/**
 * Verifies at the current time, not at the document's own time: the gateway says that the enclave
 * runs now.
 */
async function verifyNow(
  bytes: Attempt<Uint8Array>,
  {
    policy: { roots, revoked, allowDebug },
    nonce,
    at,
  }: { readonly policy: BundlePolicy; readonly nonce: Uint8Array | null; readonly at: Date },
): Promise<Attempt<AttestationFacts>> {
  try {
    return {
      value: await verifyAttestation(
        need(bytes),
        {
          measurements: 'any',
          ...(nonce === null ? {} : { nonce }),
          ...(roots === undefined ? {} : { roots }),
          ...(revoked === undefined ? {} : { revoked }),
          ...(allowDebug === undefined ? {} : { allowDebug }),
        },
        at,
      ),
    }
  } catch (fault) {
    return { fault }
  }
}
