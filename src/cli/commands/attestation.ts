import { type Command, InvalidArgumentError, Option } from 'commander'
import { decodeHex } from '../../../attestation/bytes.ts'
import { AttestationError } from '../../../attestation/nitro/attestation-error.ts'
import { FIELD_BYTES_MAX } from '../../../attestation/nitro/document.ts'
import { type AttestationPolicy, resolvePolicy } from '../../../attestation/nitro/policy.ts'
import { outcomesOfRefusal } from '../../../attestation/nitro/rule-outcomes.ts'
import { createAttestationVerifier } from '../../../attestation/nitro/verify-attestation.ts'
import {
  type AttestationReport,
  decodeDocumentFile,
  formatAttestationJson,
  formatAttestationText,
} from '../attestation-report.ts'
import { EXIT_CODES } from '../exit-codes.ts'
import {
  type AttestationOptions,
  addAttestationOptions,
  readAttestationPolicy,
  readRevocationLists,
} from '../expected-evidence.ts'
import { readSource } from '../files.ts'
import { createListingVerifier } from '../revocation/listing-verifier.ts'

type AttestationCommandOptions = AttestationOptions & {
  readonly nonce?: Uint8Array
  readonly at?: Date
  readonly historical?: boolean
  /** Milliseconds. */
  readonly maxAge?: number
  readonly json?: boolean
}

/** Adds `attestation FILE`. Exit code 0 only when every rule that was asked for holds, 1 otherwise, 2 for usage. */
export function registerAttestation(program: Command): void {
  const command = program
    .command('attestation')
    .summary('validate an AWS Nitro attestation document')
    .description(
      'Validate an AWS Nitro attestation document: that a security module which AWS certified made it, when, ' +
        'and for which code. Without --release or --pcr a document is not valid, because nothing was expected of the code, ' +
        'unless --any-measurement is said.',
    )
    .argument('<file>', 'the document in binary, base64 or hex, or - for standard input')
  addAttestationOptions(command)
    .option('--nonce <hex>', 'the nonce that the document must carry', parseNonce)
    .addOption(
      new Option('--at <unix-seconds>', 'validate as if it were this time (default: now)')
        .argParser(parseTime)
        .conflicts('historical'),
    )
    .addOption(
      new Option('--historical', "validate at the document's own time, for stored records").conflicts(
        'maxAge',
      ),
    )
    .option(
      '--max-age <seconds>',
      'longest time since the document was made (default: the 3 hours of its leaf)',
      parseDuration,
    )
    .option('--json', 'print one JSON object {valid, code, message, facts}')
    .addHelpText('after', '\nExit codes: 0 valid, 1 not valid, 2 usage.')
    .action(async (file: string, options: AttestationCommandOptions) => {
      const report = await validateFile(file, options)
      const output = options.json ? formatAttestationJson(report) : formatAttestationText(report)
      process.stdout.write(`${output}\n`)
      process.exitCode = report.valid ? EXIT_CODES.done : EXIT_CODES.failed
    })
}

async function validateFile(file: string, options: AttestationCommandOptions): Promise<AttestationReport> {
  const policy = await readPolicy(options)
  const at = options.at ?? new Date()
  const lists = await readRevocationLists(options, at.getTime())
  const verifier = createListingVerifier(createAttestationVerifier(), lists, { isOfOne: true })
  const document = decodeDocumentFile(await readSource(file, { apiKey: null, stdin: process.stdin }))
  try {
    const facts = await verifier.verify(document, policy, at)
    return { valid: true, facts }
  } catch (error) {
    if (!(error instanceof AttestationError)) throw error
    return { valid: false, error, rules: outcomesOfRefusal(error, resolvePolicy(policy)), document }
  }
}

async function readPolicy(options: AttestationCommandOptions): Promise<AttestationPolicy> {
  return {
    ...(await readAttestationPolicy(options)),
    mode: options.historical ? 'historical' : 'current',
    ...(options.nonce ? { nonce: options.nonce } : {}),
    ...(options.maxAge === undefined ? {} : { maxAgeMs: options.maxAge }),
  }
}

function parseNonce(text: string): Uint8Array {
  const digits = text.toLowerCase().replace(/^0x/, '')
  if (!/^([0-9a-f]{2})*$/.test(digits) || digits.length > 2 * FIELD_BYTES_MAX)
    throw new InvalidArgumentError(`expected at most ${FIELD_BYTES_MAX} bytes in hex`)
  return decodeHex(digits)
}

function parseTime(text: string): Date {
  if (!/^\d{1,12}$/.test(text)) throw new InvalidArgumentError('expected whole seconds since 1970')
  return new Date(Number(text) * 1000)
}

function parseDuration(text: string): number {
  if (!/^\d{1,12}$/.test(text)) throw new InvalidArgumentError('expected whole seconds')
  return Number(text) * 1000
}
