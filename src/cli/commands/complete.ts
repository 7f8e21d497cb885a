import type { Command } from 'commander'
import { addGatewayOptions, type GatewayAccessOptions } from '../options.ts'

export function registerComplete(program: Command): void {
  const command = program
    .command('complete')
    .summary('add the anchors to evidence that has none yet')
    .description(
      'Ask the gateway for the anchor of each call without a block, and add it to the file. ' +
        'Then the file can be checked for years without the gateway.',
    )
    .argument(
      '<file...>',
      'evidence that the client, the proxy or the playground saved, a saved page, or a folder of these',
    )
  addGatewayOptions(command)
    .addHelpText(
      'after',
      `
It asks for every file, also after one that could not be completed.
Exit codes: 0 all are complete, 1 a file could not be completed, 2 usage, 3 an anchor has no block yet, or the
gateway was not reached.`,
    )
    .action(async (files: readonly string[], options: GatewayAccessOptions) => {
      const { completeFiles } = await import('../evidence/complete-evidence.ts')
      process.exitCode = await completeFiles(files, options)
    })
}
