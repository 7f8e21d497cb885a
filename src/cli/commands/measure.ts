import type { Command } from 'commander'
import { EXIT_CODES } from '../faults.ts'

/** Exit code: 0 if the image can be measured, 1 if not, 2 for wrong usage. */
export function registerMeasure(program: Command): void {
  program
    .command('measure')
    .summary('compute the measurements of an enclave image')
    .description(
      'Compute PCR0, PCR1, PCR2 and PCR8 of a Nitro enclave image file. An image is refused ' +
        'when it has a byte outside its sections, a wrong checksum or a wrong signature.',
    )
    .argument('<image>', 'enclave image file (.eif)')
    .option('--json', 'print one JSON object {valid, code, message, facts}')
    .action(async (image: string, options: { readonly json?: boolean }) => {
      const { reportImage } = await import('../measure-image.ts')
      const { output, isValid } = await reportImage(image, options)
      process.stdout.write(output)
      process.exitCode = isValid ? EXIT_CODES.done : EXIT_CODES.failed
    })
}
