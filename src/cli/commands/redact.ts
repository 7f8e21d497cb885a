import type { Command } from 'commander'
import type { RedactOptions } from '../evidence/redact.ts'

/** Adds `redact FILE`, which leaves the request or the response out of an evidence bundle. */
export function registerRedact(program: Command): void {
  program
    .command('redact')
    .summary('leave the request or the response out of an evidence bundle')
    .description(
      'Make an evidence bundle without the request, without the response, or without both: only the hash remains. The rest can still be verified.',
    )
    .argument('<file>', 'an evidence bundle, or - for standard input')
    .option('--request', 'leave out the request')
    .option('--response', 'leave out the response')
    .option('--output <file>', 'write it there instead of on standard output')
    .addHelpText('after', HELP)
    .action(async (file: string, options: RedactOptions) => {
      const { redactFile } = await import('../evidence/redact.ts')
      await redactFile(file, options)
    })
}

const HELP = `
What this does not hide: the receipt (models, provider, times, outcome), what the other part repeats, and a part
that can be guessed, since its hash has no salt but the nonce that a caller put into the request.`
