import type { Command } from 'commander'
import { EXIT_CODES } from '../faults.ts'
import { POLICY_HELP, parseRpcUrl, parseUnixSeconds } from '../options.ts'
import type { ProviderOptions } from '../provider-report.ts'

/**
 * Exit code: 0 if nothing failed and a given policy accepts all evidence, 1 if not, 2 for wrong
 * usage, 3 without evidence.
 */
export function registerProvider(program: Command): void {
  program
    .command('provider')
    .summary("verify evidence of a model provider's machine")
    .description(
      "Verify evidence of a model provider's machine: which hardware, which code, which keys, " +
        'which weights. Without --policy it says what the evidence holds, and accepts nothing, ' +
        'because you did not say which code you expect.',
    )
    .argument(
      '<source>',
      'a file with the evidence, or with a bundle that has it; - for standard input; the URL ' +
        'of a gateway, or of an evidence',
    )
    .option('--policy <file>', POLICY_HELP)
    .option(
      '--at <unix-seconds>',
      'verify as if it were this time (default: now; for a bundle, the time of its receipt)',
      parseUnixSeconds,
    )
    .option(
      '--rpc <url>',
      "JSON-RPC endpoint of the chain, to look up the block of the evidence's nonce: it shows the age",
      parseRpcUrl,
    )
    .option('--provider <name>', "only this provider of the gateway's list")
    .option('--json', 'print one JSON object {ok, providers}')
    .addHelpText(
      'after',
      '\nExit codes: 0 nothing failed, and with --policy all evidence is accepted, 1 not, 2 ' +
        'usage, 3 no evidence.',
    )
    .action(async (source: string, options: ProviderOptions) => {
      const { reportProviders } = await import('../provider-report.ts')
      const { output, isOk } = await reportProviders(source, options)
      process.stdout.write(output)
      process.exitCode = isOk ? EXIT_CODES.done : EXIT_CODES.failed
    })
}
