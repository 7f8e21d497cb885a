import type { Command } from 'commander'
import type { PolicyOptions } from '../make-policy.ts'
import { addReleaseTrustOptions, collectPcr, collectText, TRUSTED } from '../options.ts'

export function registerPolicy(program: Command): void {
  const policy = program
    .command('policy')
    .description('Make policy.json, which says whom you trust, or explain it.')
  const command = policy
    .command('make', { isDefault: true })
    .summary('make policy.json from releases and keys, or from other policies')
    .description(
      "Make policy.json, which says whom you trust, from a vendor's signed releases and keys, or " +
        'from other policies. The commands verify, audit, attestation, provider and proxy take ' +
        "it as --policy, and the client's connect takes it as `policy`. Says on standard error " +
        'what the policy leaves open.',
    )
    .option('--output <file>', 'write it there instead of on standard output')
    .option('--from <file>', 'begin with the parts of this policy; may be repeated', collectText)
    .optionsGroup(TRUSTED)
    .option(
      '--release <file|url>',
      'accept this signed release, or the releases of this signed list; may be repeated',
      collectText,
    )
  addReleaseTrustOptions(command)
    .option('--pcr <index=hex>', 'accepted measurement, instead of releases', collectPcr)
    .option(
      '--configuration <digest|file>',
      'accepted boot configuration, for releases that do not name one; may be repeated',
      collectText,
    )
    .option('--root <file>', "trust this root instead of AWS's; may be repeated", collectText)
    .addHelpText(
      'after',
      `
Exit codes: 0 made, 1 the signatures of a release are not sufficient, 2 usage, 3 a file or URL cannot be read.`,
    )
    .action(async (options: PolicyOptions) => {
      const { makePolicy } = await import('../make-policy.ts')
      await makePolicy(options)
    })
  policy
    .command('show')
    .description('Say in sentences what a policy accepts, and what it leaves open.')
    .argument('<file>', 'the policy')
    .option('--json', 'print one JSON object {accepts, open}')
    .addHelpText('after', '\nExit codes: 0 shown, 2 not a policy, 3 the file cannot be read.')
    .action(async (file: string, options: { readonly json?: boolean }) => {
      const { showPolicy } = await import('../make-policy.ts')
      await showPolicy(file, options)
    })
}
