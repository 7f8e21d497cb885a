import { CliError } from '../exit-codes.ts'
import { readSource, writeOutput } from '../files.ts'
import { chooseKey, evidenceUrl } from '../gateway-access.ts'
import type { GatewayOptions } from '../options.ts'
import { readBundle } from './read-evidence.ts'

/** What the options say, as commander gives it. */
export type EvidenceOptions = GatewayOptions & { readonly output?: string }

/** Writes the evidence bundle of a completion, exactly as the gateway gives it. Throws CliError for any other answer. */
export async function fetchEvidence(hash: string, options: EvidenceOptions): Promise<void> {
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
