import type { Command } from 'commander'
import { addGatewayOptions, type GatewayAccessOptions } from '../options.ts'

export function registerComplete(program: Command): void {
  const command = program
    .command('complete')
    .summary('add the evidence bundle to a saved proof')
    .description(
      'Ask the gateway for the evidence bundle of each saved proof and add it to the file. ' +
        'Then the file can be checked for years without the gateway.',
    )
    .argument('<file...>', 'proofs that the client, the proxy or the playground saved')
  addGatewayOptions(command)
    .addHelpText(
      'after',
      `
It asks for every file, also after one that could not be completed.
Exit codes: 0 all are complete, 1 a proof could not be completed, 2 usage, 3 an anchor has no block yet, or the
gateway was not reached.`,
    )
    .action(async (files: readonly string[], options: GatewayAccessOptions) => {
      const { completeProofs } = await import('../evidence/complete-proof.ts')
      process.exitCode = await completeProofs(files, options)
    })
}
