import { encodeHex } from '#attestation/bytes.ts'
import { FormatError } from '#attestation/errors.ts'
import type { AttestationFacts, CertificateFacts, RuleOutcome } from '#attestation/nitro/facts.ts'
import type { AttestationPolicy } from '#attestation/nitro/policy.ts'
import { nameRelease, releaseName } from '#attestation/release/release-name.ts'
import {
  type DocumentJudgement,
  decodeDocumentFile,
  judgeDocument,
} from '#attestation/report/judge-document.ts'
import { isoOf, printable } from '#attestation/report/printable.ts'
import { readAttestationPolicy, readRevocationLists } from './expected-evidence.ts'
import { CliError, convertFault } from './faults.ts'
import { readSource } from './files.ts'
import type { AttestationOptions } from './options.ts'
import { jsonText, ROOT_HINT } from './printable.ts'

export type AttestationCommandOptions = AttestationOptions & {
  readonly nonce?: Uint8Array
  readonly at?: Date
  readonly historical?: boolean
  /** Milliseconds. */
  readonly maxAge?: number
  readonly json?: boolean
}

/** Throws CliError if the file cannot be read or decoded. */
export async function reportDocument(
  file: string,
  options: AttestationCommandOptions,
): Promise<{ readonly output: string; readonly isValid: boolean }> {
  const report = await validateFile(file, options)
  const text = options.json ? formatAttestationJson(report) : formatAttestationText(report)
  return { output: text, isValid: report.valid }
}

async function validateFile(
  file: string,
  options: AttestationCommandOptions,
): Promise<DocumentJudgement> {
  const policy = await readPolicy(options)
  const at = options.at ?? new Date()
  const openVerifier = await readRevocationLists(options, at.getTime())
  const verifier = openVerifier({ isOfOne: true })
  const document = readDocument(await readSource(file))
  return await judgeDocument(document, { policy, verifier, at })
}

/** Throws CliError for text before or after the document. */
function readDocument(bytes: Uint8Array): Uint8Array {
  const toError = ({ message }: FormatError) => new CliError(message)
  return convertFault(() => decodeDocumentFile(bytes), FormatError, toError)
}

async function readPolicy(options: AttestationCommandOptions): Promise<AttestationPolicy> {
  return {
    ...(await readAttestationPolicy(options)),
    mode: options.historical ? 'historical' : 'current',
    ...(options.nonce ? { nonce: options.nonce } : {}),
    ...(options.maxAge === undefined ? {} : { maxAgeMs: options.maxAge }),
  }
}

/**
 * One JSON object {valid, code, message, facts}. `code` and `message` are null for a valid
 * document. `facts` is null for a refused document, so that no program uses its claims as facts.
 */
function formatAttestationJson(report: DocumentJudgement): string {
  if (report.valid)
    return jsonText({ valid: true, code: null, message: null, facts: factsObject(report.facts) })
  const { code, message } = report.error
  return jsonText({ valid: false, code, message, facts: null })
}

function formatAttestationText(report: DocumentJudgement): string {
  const lines = report.valid ? formatFacts(report.facts) : formatRefusal(report)
  const rules = report.valid ? report.facts.rules : report.rules
  return `${[...lines, '', 'Rules', ...rules.map(formatRule)].join('\n')}\n`
}

function factsObject(facts: AttestationFacts) {
  return {
    module_id: facts.moduleId,
    timestamp_ms: facts.timestampMs,
    verified_at_ms: facts.verifiedAtMs,
    mode: facts.mode,
    measurements: Object.fromEntries(
      [...facts.measurements].map(([index, pcr]) => [index, encodeHex(pcr)]),
    ),
    release: facts.release && releaseName(facts.release),
    public_key: hexOrNull(facts.publicKey),
    user_data: hexOrNull(facts.userData),
    nonce: hexOrNull(facts.nonce),
    debug_mode: facts.isDebugMode,
    certificates: facts.certificates.map((certificate) => ({
      subject: certificate.subject,
      issuer: certificate.issuer,
      serial: encodeHex(certificate.serial),
      sha256: encodeHex(certificate.sha256),
      not_before: certificate.notBeforeMs / 1000,
      not_after: certificate.notAfterMs / 1000,
    })),
    bindings: {
      instance_id: facts.bindings.instanceId,
      pcr4: facts.bindings.pcr4,
      leaf_common_name: facts.bindings.leafCommonName,
      issuer_common_name: facts.bindings.issuerCommonName,
    },
    unknown_keys: facts.unknownKeys,
    rules: facts.rules,
  }
}

function hexOrNull(bytes: Uint8Array | null): string | null {
  return bytes === null ? null : encodeHex(bytes)
}

function formatFacts(facts: AttestationFacts): readonly string[] {
  const { certificates, bindings } = facts
  const [root] = certificates
  const leaf = certificates.at(-1)
  const mode = facts.mode === 'historical' ? " (historical: the document's own time)" : ''
  return [
    facts.isDebugMode ? 'VALID, IN DEBUG MODE: nothing is known of the code' : 'VALID',
    '',
    'Who',
    `  module    ${printable(facts.moduleId)}`,
    `  instance  ${bindings.instanceId === null ? 'not named' : printable(bindings.instanceId)}`,
    ...(root ? [`  root      ${nameCertificate(root)}`] : []),
    '',
    'When',
    `  made      ${isoOf(facts.timestampMs)}`,
    `  checked   ${isoOf(facts.verifiedAtMs)}${mode}`,
    ...(leaf ? [`  leaf      ${isoOf(leaf.notBeforeMs)} to ${isoOf(leaf.notAfterMs)}`] : []),
    '',
    'Measurements (SHA-384)',
    ...formatMeasurements(facts.measurements),
    ...(facts.release ? [`  of        ${printable(nameRelease(facts.release))}`] : []),
    '',
    'From the enclave',
    ...formatFields(facts),
    '',
    'Certificates',
    ...certificates.map((certificate) => `  ${nameCertificate(certificate)}`),
    ...formatUnknownKeys(facts.unknownKeys),
  ]
}

function formatRefusal({
  error,
  claims,
}: Extract<DocumentJudgement, { valid: false }>): readonly string[] {
  const hint = hintFor(error.code)
  const head = [
    `REFUSED  ${error.code}`,
    `  ${printable(error.message)}`,
    ...(hint === null ? [] : [`  ${hint}`]),
  ]
  if (claims === null) return head
  return [
    ...head,
    '',
    error.stage === 'policy'
      ? 'What the document says (its signature holds, but it does not meet your policy)'
      : 'What the document claims (nothing here is proven)',
    `  module    ${printable(claims.moduleId)}`,
    `  made      ${isoOf(claims.timestampMs)}`,
    ...formatMeasurements(claims.pcrs),
    ...formatFields(claims),
    ...formatUnknownKeys(claims.unknownKeys),
  ]
}

/** Null if the message is enough. */
function hintFor(code: string): string | null {
  if (code === 'root_untrusted') return ROOT_HINT
  if (code === 'document_too_old' || code === 'certificate_expired')
    return (
      'Use --historical to validate an old document at its own time: other evidence must show ' +
      'when it was made.'
    )
  return null
}

function formatMeasurements(measurements: ReadonlyMap<number, Uint8Array>): readonly string[] {
  const isZero = (pcr: Uint8Array) => pcr.every((byte) => byte === 0)
  const zero = [...measurements].filter(([, pcr]) => isZero(pcr)).map(([index]) => index)
  return [
    ...[...measurements]
      .filter(([, pcr]) => !isZero(pcr))
      .map(([index, pcr]) => `  ${`PCR${index}`.padEnd(8)}  ${encodeHex(pcr)}`),
    ...(zero.length > 0 ? [`  zero      PCR ${zero.join(', ')}`] : []),
  ]
}

type EnclaveFields = Pick<AttestationFacts, 'publicKey' | 'userData' | 'nonce'>

function formatFields({ publicKey, userData, nonce }: EnclaveFields): readonly string[] {
  return [
    `  public_key  ${formatField(publicKey)}`,
    `  user_data   ${formatField(userData)}`,
    `  nonce       ${formatField(nonce)}`,
  ]
}

function formatField(bytes: Uint8Array | null): string {
  if (bytes === null) return 'none'
  return bytes.length === 0 ? 'empty' : encodeHex(bytes)
}

function formatUnknownKeys(keys: readonly string[]): readonly string[] {
  if (keys.length === 0) return []
  return ['', 'Unknown keys, not checked', ...keys.map((key) => `  ${printable(key)}`)]
}

function nameCertificate({ subject, sha256, notBeforeMs, notAfterMs }: CertificateFacts): string {
  const life = `${isoOf(notBeforeMs)} to ${isoOf(notAfterMs)}`
  return `${printable(subject)}\n            SHA-256 ${encodeHex(sha256)}\n            valid ${life}`
}

function formatRule({ rule, title, outcome, detail }: RuleOutcome): string {
  const mark = outcome === 'failed' ? 'FAILED' : outcome
  const text = `  ${mark.padEnd(12)} ${String(rule).padStart(2)}  ${title}`
  return detail === '' ? text : `${text} (${printable(detail)})`
}
