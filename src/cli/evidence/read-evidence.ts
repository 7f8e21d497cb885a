import { FormatError } from '#attestation/errors.ts'
import { sayNoBlock } from '#attestation/evidence/anchor-checks.ts'
import { type EvidenceBundle, parseEvidenceBundle } from '#attestation/evidence/bundle.ts'
import { writeEvidenceLines } from '#attestation/evidence/evidence-lines.ts'
import { printable } from '#attestation/report/printable.ts'
import {
  type EvidenceCode,
  EvidenceError,
  readEvidence,
} from '#attestation/report/read-evidence.ts'
import { beginSentence } from '#attestation/report/say-absence.ts'
import { CliError, convertFault, EXIT_CODES } from '../faults.ts'
import { listFiles, readSource, writeOutput } from '../files.ts'
import { type GatewayAccessOptions, hashOf, isHash } from '../options.ts'
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
  request_twice: 'expected no --request: the evidence with the answer also has the request',
  answer_unfit:
    'expected --answer to be an answer as JSON, its event stream, or evidence that has it',
  answer_twice:
    'expected no --answer: the source itself is an answer; give the evidence as the source',
  several_records: 'expected one record with --request and --answer, got several',
}

/**
 * Reads the calls of evidence: a file of one or several calls, or a saved page. `bytes` are
 * attacker-controlled. For anything else, throws CliError with the source's name `what` and the
 * exit code. Does NOT prove anything: see verifyBundle.
 */
export function readEvidenceFile(
  bytes: Uint8Array,
  what: string,
  exitCode: number = EXIT_CODES.failed,
): readonly EvidenceBundle[] {
  const toError = ({ message }: FormatError) =>
    new CliError(`expected ${what} to be evidence: ${message}`, exitCode)
  return convertFault(
    () => {
      const evidence = readEvidence(bytes, null)
      if (evidence.kind === 'records')
        throw new FormatError('not_evidence', 'got a record, or an answer')
      const calls = evidence.kind === 'bundle' ? [evidence.bundle] : evidence.calls
      return calls.map(parseEvidenceBundle)
    },
    FormatError,
    toError,
  )
}

/** Reads the evidence of one call, as readEvidenceFile does. */
export function readCall(
  bytes: Uint8Array,
  what: string,
  exitCode: number = EXIT_CODES.failed,
): EvidenceBundle {
  const [call, another] = readEvidenceFile(bytes, what, exitCode)
  if (call === undefined || another !== undefined)
    throw new CliError(`expected ${what} to be the evidence of one call`, exitCode)
  return call
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
 * Writes the evidence of a completion, by its hash, or of the calls in files and folders, as JSON
 * Lines or inside a page. Throws CliError.
 */
export async function printEvidence(
  sources: readonly string[],
  options: EvidenceOptions,
  openVerifier: OpenVerifier,
): Promise<void> {
  const calls: EvidenceBundle[] = []
  for (const source of await listFiles(sources))
    calls.push(
      ...(isHash(source)
        ? [await fetchEvidence(hashOf(source), options)]
        : readEvidenceFile(await readSource(source), printable(source), EXIT_CODES.usage)),
    )
  const text = options.html ? await writePage(openVerifier, calls) : writeEvidenceLines(calls)
  await writeOutput(text.endsWith('\n') ? text : `${text}\n`, options.output)
  for (const call of calls.filter(({ block }) => block === null))
    process.stderr.write(`${beginSentence(sayNoBlock(call))}.\n`)
}

/** Throws CliError for any other answer. */
async function fetchEvidence(hash: string, options: EvidenceOptions): Promise<EvidenceBundle> {
  // The module is loaded only when needed: checks of files do not need it.
  const { evidenceSource } = await import('../gateway-access.ts')
  const { url, access } = evidenceSource(hash, options)
  const bytes = await readSource(url, access)
  if (access.apiKey === null) process.stderr.write(sayPublic(access))
  const call = readCall(bytes, 'the answer')
  if (call.record.hash !== hash)
    throw new CliError('expected the evidence of this hash, got the evidence of another hash')
  return call
}
