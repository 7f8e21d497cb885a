import type { Command } from 'commander'
import type { ExpectOptions } from '../make-expectations.ts'
import { addReleaseTrustOptions, collectPcr, collectText } from '../options.ts'

export function registerExpect(program: Command): void {
  const command = program
    .command('expect')
    .summary('make the file that says which enclaves are acceptable')
    .description(
      "Make a file of expectations from a vendor's signed releases. The commands verify, " +
        "audit, attestation and proxy take it as --expect, and the client's connect takes it as " +
        '`expect`.',
    )
    .option('--output <file>', 'write it there instead of on standard output')
    .optionsGroup('What you expect:')
    .option(
      '--release <file|url>',
      'expect this signed release, or the releases of this signed list; may be repeated',
      collectText,
    )
  addReleaseTrustOptions(command)
    .option('--pcr <index=hex>', 'expected measurement, instead of releases', collectPcr)
    .option(
      '--configuration <digest|file>',
      'expected boot configuration, for releases that do not name one; may be repeated',
      collectText,
    )
    .option('--root <file>', "trust this root instead of AWS's; may be repeated", collectText)
    .addHelpText(
      'after',
      `
Exit codes: 0 made, 1 the signatures of a release are not sufficient, 2 usage, 3 a file or URL cannot be read.`,
    )
    .action(async (options: ExpectOptions) => {
      const { makeExpectations } = await import('../make-expectations.ts')
      const { writeOutput } = await import('../files.ts')
      await writeOutput(await makeExpectations(options), options.output)
    })
}
