import type { Command } from 'commander'
import type { OpenVerifier } from '../evidence/evidence-page.ts'
import type { EvidenceOptions } from '../evidence/read-evidence.ts'
import { addGatewayOptions } from '../options.ts'

export function registerEvidence(program: Command, openVerifier: OpenVerifier): void {
  const command = program
    .command('evidence')
    .summary('fetch the evidence of a completion, or write it as a page')
    .description(
      'Write the evidence of completions: a file that can be checked for years, without the ' +
        'gateway. A hash is fetched. Fetch it again when its transaction is in a block.',
    )
    .argument(
      '<source...>',
      'the hash of a completion, 64 hex digits, a file of evidence, a saved page, or a folder of these',
    )
    .option('--html', 'as one HTML file, which shows the report and checks itself in a browser')
    .option('--output <file>', 'write it there instead of on standard output')
  addGatewayOptions(command)
    .addHelpText(
      'after',
      '\nThis command checks only that fetched evidence belongs to the completion. To check the ' +
        'rest: affidavit verify.',
    )
    .action(async (sources: readonly string[], options: EvidenceOptions) => {
      const { printEvidence } = await import('../evidence/read-evidence.ts')
      await printEvidence(sources, options, openVerifier)
    })
}
