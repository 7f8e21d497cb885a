import type { Command } from 'commander'
import type { RedactOptions } from '../evidence/redact.ts'

export function registerRedact(program: Command): void {
  program
    .command('redact')
    .summary('leave the request or the response out of evidence')
    .description(
      'Write evidence without the request, the response, or both: only their hashes ' +
        'remain. The rest can still be verified.',
    )
    .argument('<file...>', 'evidence, a saved page, a folder of these, or - for standard input')
    .option('--request', 'leave out the request')
    .option('--response', 'leave out the response')
    .option('--output <file>', 'write it there instead of on standard output')
    .addHelpText('after', HELP)
    .action(async (files: readonly string[], options: RedactOptions) => {
      const { redactFiles } = await import('../evidence/redact.ts')
      await redactFiles(files, options)
    })
}

const HELP = `
This does not hide the receipt (models, provider, times, outcome) or what the other part repeats. Nor does it hide a
part that can be guessed: the only salt of a request's hash is the nonce that a caller put into the request, and the
only salt of a response's hash is the id that its provider gave it.`
