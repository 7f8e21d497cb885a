import { type Command, InvalidArgumentError } from 'commander'
import { readBundle } from '../evidence/read-evidence.ts'
import { CliError } from '../exit-codes.ts'
import { readSource, writeOutput } from '../files.ts'
import { chooseKey } from '../gateway-key.ts'
import { addGatewayOptions, evidenceUrl, type GatewayOptions, hashOf, isHash } from '../options.ts'

type EvidenceOptions = GatewayOptions & { readonly output?: string }

/** Adds `evidence HASH`, which fetches the evidence bundle of one completion, exactly as the gateway gives it. */
export function registerEvidence(program: Command): void {
  const command = program
    .command('evidence')
    .summary('fetch the evidence bundle of a completion')
    .description(
      'Fetch the evidence bundle of a completion: one file that can be checked for years, without the gateway. Fetch it again once its transaction is mined.',
    )
    .argument('<hash>', "the completion's hash, 64 hex digits", parseHash)
    .option('--output <file>', 'write it there instead of on standard output')
  addGatewayOptions(command)
    .addHelpText('after', '\nIt is not checked here, but for being of this completion: see verify.')
    .action(fetchEvidence)
}

async function fetchEvidence(hash: string, options: EvidenceOptions): Promise<void> {
  const url = evidenceUrl(hash, options)
  const bytes = await readSource(url, { ...chooseKey(url, options), stdin: process.stdin })
  const { record, block } = readBundle(bytes, 'the answer')
  if (record.hash !== hash) throw new CliError('expected the evidence of this hash, got that of another one')
  const text = new TextDecoder().decode(bytes)
  await writeOutput(text.endsWith('\n') ? text : `${text}\n`, options.output)
  if (block === null)
    process.stderr.write(
      'The transaction is not mined yet: this bundle does not show a block. Ask again later.\n',
    )
}

function parseHash(text: string): string {
  if (!isHash(text)) throw new InvalidArgumentError('expected 64 hex digits')
  return hashOf(text)
}
