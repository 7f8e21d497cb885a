import { addressOf } from '#attestation/account.ts'
import { decodeBase64, decodeHex, encodeHex, equalBytes } from '#attestation/bytes.ts'
import { digestBootConfiguration } from '#attestation/evidence/boot-configuration.ts'
import { parseBootConfiguration } from '#attestation/evidence/boot-facts.ts'
import { checkExpectedConfiguration } from '#attestation/evidence/document-checks.ts'
import type { BundlePolicy } from '#attestation/evidence/policy.ts'
import { type Check, check } from '#attestation/finding.ts'
import { isJsonObject, type JsonObject, memberOf } from '#attestation/json/value.ts'
import { AttestationError } from '#attestation/nitro/attestation-error.ts'
import { decodeAttestationPayload } from '#attestation/nitro/document.ts'
import type { AttestationFacts } from '#attestation/nitro/facts.ts'
import type { AttestationVerifier } from '#attestation/nitro/verify-attestation.ts'
import { nameRelease } from '#attestation/release/release-name.ts'
import { type AskedGateway, askGateway } from './ask-gateway.ts'
import { AffidavitError, type AffidavitErrorCode, invalidReply, withErrorCode } from './errors.ts'

/** The checks of a notary's enclave. */
export type NotaryCheckName = 'attestation document' | 'nonce' | 'measurements' | 'configuration'

/** A notary whose enclave proved to be an expected enclave. */
export type AttestedNotary = {
  /** 0x, lower case. */
  readonly notary: string
  /** 0x and 65 bytes of hex. */
  readonly publicKey: string
  readonly attestedAt: Date
  /** The earliest expiry of the document's certificates. */
  readonly validUntil: Date
  /** The enclave's boot configuration: providers, certificate authorities, chain, contract. */
  readonly configuration: JsonObject
  readonly checks: readonly Check<NotaryCheckName>[]
  /** The facts that the attestation document proves. */
  readonly facts: AttestationFacts
}

const NONCE_BYTES = 32
const EMPTY = new Uint8Array()

/**
 * Requests a document with our own nonce, and checks it against the policy. Throws AffidavitError.
 */
export async function attestNotary(
  gateway: AskedGateway,
  parts: {
    readonly notary: string
    readonly policy: BundlePolicy
    readonly verifier: AttestationVerifier
    readonly now: () => number
    readonly signal: AbortSignal | undefined
  },
): Promise<AttestedNotary> {
  const { notary, policy, now, signal } = parts
  const nonce = crypto.getRandomValues(new Uint8Array(NONCE_BYTES))
  // With the API key, this request does not wait behind requests that have no key.
  const path = `/v1/attestation?nonce=${encodeHex(nonce)}&notary=${notary}`
  const { json } = await askGateway(gateway, path, { withKey: true, signal })
  const attestation = memberOf(json, 'attestation')
  const configuration = memberOf(json, 'boot_configuration')
  if (typeof attestation !== 'string' || !isJsonObject(configuration))
    throw invalidReply('expected attestation and boot_configuration')
  const bytes = withErrorCode('invalid_document', () => decodeBase64(attestation))
  const atMs = now()
  const facts = await verifyNotaryDocument(bytes, { ...parts, nonce, atMs })
  const key = facts.publicKey
  if (key === null || addressOfKey(`0x${encodeHex(key)}`) !== notary)
    throw new AffidavitError('invalid_document', `expected the document of ${notary}`)
  return {
    notary,
    publicKey: `0x${encodeHex(key)}`,
    attestedAt: new Date(atMs),
    validUntil: new Date(endOfDocument(facts)),
    configuration,
    facts,
    checks: [
      passed(
        'attestation document',
        `${facts.moduleId}, made ${new Date(facts.timestampMs).toISOString()}`,
      ),
      passed('nonce', `it contains the number ${encodeHex(nonce)}, which this client chose`),
      passed('measurements', nameCode(facts)),
      passed('configuration', checkConfiguration(configuration, { facts, bytes, policy })),
    ],
  }
}

/**
 * Checks that the document states the digest of this configuration, and that the policy expects
 * this configuration.
 */
function checkConfiguration(
  configuration: JsonObject,
  parts: {
    readonly facts: AttestationFacts
    readonly bytes: Uint8Array
    readonly policy: BundlePolicy
  },
): string {
  withErrorCode('invalid_reply', () => parseBootConfiguration(configuration))
  const digest = digestBootConfiguration(configuration)
  if (!equalBytes(parts.facts.userData ?? EMPTY, digest))
    throw new AffidavitError(
      'invalid_document',
      'expected the document to state the digest of the boot configuration',
    )
  const document = { value: decodeAttestationPayload(parts.bytes) }
  const { outcome, detail } = check('configuration', () =>
    checkExpectedConfiguration(digest, { document, policy: parts.policy }),
  )
  // "Not checked" does not mean "passed".
  if (outcome !== 'passed') throw new AffidavitError('unexpected_configuration', detail)
  return detail
}

/** The document must be valid at `atMs`, Unix milliseconds. Throws AffidavitError. */
export async function verifyNotaryDocument(
  bytes: Uint8Array,
  parts: {
    readonly policy: BundlePolicy
    readonly verifier: AttestationVerifier
    readonly atMs: number
    readonly nonce?: Uint8Array
  },
): Promise<AttestationFacts> {
  const { measurements = [], releases, roots, revoked, allowDebug } = parts.policy
  try {
    return await parts.verifier.verify(
      bytes,
      {
        measurements,
        ...(releases === undefined ? {} : { releases }),
        ...(roots === undefined ? {} : { roots }),
        ...(revoked === undefined ? {} : { revoked }),
        ...(allowDebug === undefined ? {} : { allowDebug }),
        ...(parts.nonce === undefined ? {} : { nonce: parts.nonce }),
      },
      new Date(parts.atMs),
    )
  } catch (fault) {
    if (!(fault instanceof AttestationError)) throw fault
    throw new AffidavitError(codeOf(fault), `${fault.code}: ${fault.message}`, { cause: fault })
  }
}

function codeOf({ code, rule }: AttestationError): AffidavitErrorCode {
  if (code === 'certificate_not_yet_valid' || code === 'document_from_future')
    return 'document_not_yet_valid'
  switch (rule) {
    case 18:
    case 21:
      return 'document_expired'
    case 23:
    case 24:
      return 'unexpected_code'
    default:
      return 'invalid_document'
  }
}

/** Returns the earliest expiry of the document's certificates, Unix milliseconds. */
export function endOfDocument({ certificates }: AttestationFacts): number {
  return Math.min(...certificates.map(({ notAfterMs }) => notAfterMs))
}

export function nameCode({ release, measurements }: AttestationFacts): string {
  if (release !== null) return nameRelease(release)
  return `PCR0 ${encodeHex(measurements.get(0) ?? EMPTY)}`
}

export function addressOfKey(publicKey: string): string {
  return withErrorCode('wrong_key', () => addressOf(decodeHex(publicKey)))
}

function passed(name: NotaryCheckName, detail: string): Check<NotaryCheckName> {
  return { name, outcome: 'passed', detail }
}
