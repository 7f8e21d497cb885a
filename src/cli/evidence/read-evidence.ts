import { FormatError } from '#attestation/errors.ts'
import { sayNoBlock } from '#attestation/evidence/anchor-checks.ts'
import { type EvidenceBundle, parseEvidenceBundle } from '#attestation/evidence/bundle.ts'
import { parseExactJson } from '#attestation/json/parse-strict.ts'
import { type EvidenceCode, EvidenceError } from '#attestation/report/read-evidence.ts'
import { beginSentence } from '#attestation/report/say-absence.ts'
import { CliError, convertFault, EXIT_CODES } from '../faults.ts'
import { readSource, writeOutput } from '../files.ts'
import type { GatewayAccessOptions } from '../options.ts'
import { type OpenVerifier, writePage } from './evidence-page.ts'

/** Converts EvidenceError to CliError. The message names the options of the command line. */
export function withEvidenceErrors<Value>(run: () => Value): Value {
  return convertFault(run, EvidenceError, sayEvidenceFault)
}

export function sayEvidenceFault({ code, message }: EvidenceError): CliError {
  if (code === 'not_json') return new CliError(message, EXIT_CODES.usage)
  const said = USAGE[code]
  return said === undefined ? new CliError(message) : new CliError(said, EXIT_CODES.usage)
}

const USAGE: Readonly<Partial<Record<EvidenceCode, string>>> = {
  request_missing:
    'an answer does not contain its request: give the body that was sent with --request FILE',
  request_twice: 'expected no --request: the saved proof already has the request',
  answer_unfit: 'expected --answer to be an answer as JSON, its event stream, or a saved proof',
  answer_twice:
    'expected no --answer: the source itself is an answer; give the evidence as the source',
  several_records: 'expected one record with --request and --answer, got several',
}

/**
 * `bytes` are attacker-controlled. If they are not a bundle, throws CliError with the source's name
 * `what` and the exit code. Does NOT prove anything: see verifyBundle.
 */
export function readBundle(
  bytes: Uint8Array,
  what: string,
  exitCode: number = EXIT_CODES.failed,
): EvidenceBundle {
  const toError = ({ message }: FormatError) =>
    new CliError(`expected ${what} to be an evidence bundle: ${message}`, exitCode)
  return convertFault(() => parseEvidenceBundle(parseExactJson(bytes)), FormatError, toError)
}

/** Evidence that was fetched without a key has no content. */
export function sayPublic({ keyHint }: { readonly keyHint?: string | null }): string {
  return `Public evidence, without question and answer. To get these: ${keyHint ?? '--key'}.\n`
}

export type EvidenceOptions = GatewayAccessOptions & {
  readonly html?: boolean
  readonly output?: string
}

/**
 * Writes the evidence bundle of a completion, unchanged or inside a page. Throws CliError for any
 * other answer.
 */
export async function fetchEvidence(
  hash: string,
  options: EvidenceOptions,
  openVerifier: OpenVerifier,
): Promise<void> {
  // The module is loaded only when needed: checks of files do not need it.
  const { evidenceSource } = await import('../gateway-access.ts')
  const { url, access } = evidenceSource(hash, options)
  const bytes = await readSource(url, access)
  if (access.apiKey === null) process.stderr.write(sayPublic(access))
  const bundle = readBundle(bytes, 'the answer')
  if (bundle.record.hash !== hash)
    throw new CliError('expected the evidence of this hash, got the evidence of another hash')
  const text = options.html
    ? await writePage(openVerifier, parseExactJson(bytes))
    : new TextDecoder().decode(bytes)
  await writeOutput(text.endsWith('\n') ? text : `${text}\n`, options.output)
  if (bundle.block === null) process.stderr.write(`${beginSentence(sayNoBlock(bundle))}.\n`)
}
