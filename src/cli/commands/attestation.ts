import { type Command, InvalidArgumentError, Option } from 'commander'
import { decodeHex } from '#attestation/bytes.ts'
import { FIELD_BYTES_MAX } from '#attestation/nitro/document.ts'
import type { AttestationCommandOptions } from '../attestation-report.ts'
import { EXIT_CODES } from '../faults.ts'
import { addAttestationOptions, parseUnixSeconds } from '../options.ts'

/** Exit code: 0 if every requested rule holds, 1 if a rule does not hold, 2 for wrong usage. */
export function registerAttestation(program: Command): void {
  const command = program
    .command('attestation')
    .summary('validate an AWS Nitro attestation document')
    .description(
      'Validate an AWS Nitro attestation document: which security module of AWS made it, when, ' +
        'and for which code. Without --policy, --release or --pcr a document is not valid, because you ' +
        'did not say which code you accept, unless you give --any-measurement.',
    )
    .option('--json', 'print one JSON object {valid, code, message, facts}')
    .argument('<file>', 'the document in binary, base64 or hex, or - for standard input')
  addAttestationOptions(command)
    .optionsGroup('Time and nonce:')
    .option('--nonce <hex>', 'the nonce that the document must carry', parseNonce)
    .addOption(
      new Option('--at <unix-seconds>', 'validate as if it were this time (default: now)')
        .argParser(parseUnixSeconds)
        .conflicts('historical'),
    )
    .addOption(
      new Option(
        '--historical',
        "validate at the document's own time, for stored records",
      ).conflicts('maxAge'),
    )
    .option(
      '--max-age <seconds>',
      'longest time since the document was made (default: the 3 hours of its leaf)',
      parseDuration,
    )
    .addHelpText('after', '\nExit codes: 0 valid, 1 not valid, 2 usage, 3 not read.')
    .action(async (file: string, options: AttestationCommandOptions) => {
      const { reportDocument } = await import('../attestation-report.ts')
      const { output, isValid } = await reportDocument(file, options)
      process.stdout.write(output)
      process.exitCode = isValid ? EXIT_CODES.done : EXIT_CODES.failed
    })
}

function parseNonce(text: string): Uint8Array {
  const digits = text.toLowerCase().replace(/^0x/, '')
  if (!/^([0-9a-f]{2})*$/.test(digits) || digits.length > 2 * FIELD_BYTES_MAX)
    throw new InvalidArgumentError(`expected at most ${FIELD_BYTES_MAX} bytes in hex`)
  return decodeHex(digits)
}

function parseDuration(text: string): number {
  if (!/^\d{1,12}$/.test(text)) throw new InvalidArgumentError('expected whole seconds')
  return Number(text) * 1000
}
