import { type Command, InvalidArgumentError } from 'commander'
import type { OpenVerifier } from '../evidence/evidence-page.ts'
import type { EvidenceOptions } from '../evidence/read-evidence.ts'
import { addGatewayOptions, hashOf, isHash } from '../options.ts'

export function registerEvidence(program: Command, openVerifier: OpenVerifier): void {
  const command = program
    .command('evidence')
    .summary('fetch the evidence bundle of a completion')
    .description(
      'Fetch the evidence bundle of a completion: one file that can be checked for years, ' +
        'without the gateway. Fetch it again when its transaction is in a block.',
    )
    .argument('<hash>', "the completion's hash, 64 hex digits", parseHash)
    .option('--html', 'as one HTML file, which shows the report and checks itself in a browser')
    .option('--output <file>', 'write it there instead of on standard output')
  addGatewayOptions(command)
    .addHelpText(
      'after',
      '\nThis command checks only that the bundle belongs to the completion. To check the ' +
        'rest: affidavit verify.',
    )
    .action(async (hash: string, options: EvidenceOptions) => {
      const { fetchEvidence } = await import('../evidence/read-evidence.ts')
      await fetchEvidence(hash, options, openVerifier)
    })
}

function parseHash(text: string): string {
  if (!isHash(text)) throw new InvalidArgumentError('expected 64 hex digits')
  return hashOf(text)
}
