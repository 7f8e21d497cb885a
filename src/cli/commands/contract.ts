import type { Command } from 'commander'
import type { DeployOptions } from '../contract-deployment.ts'
import { parseRpcUrl, parseSeconds, TRANSACTION_TIMEOUT_SECONDS } from '../options.ts'

export function registerContract(program: Command): void {
  const contract = program
    .command('contract')
    .description('put the anchor contract of this release on a chain')
    .helpCommand(false)
  contract
    .command('deploy')
    .summary('deploy the contract, unless it is already there')
    .description(
      'Deploy the anchor contract of this release, at the same address as on every chain, and ' +
        'compare the code there. Nothing is sent when the contract is already there. ' +
        'DEPLOYER_PRIVATE_KEY holds the key of the account that pays; it gets no rights. Do not ' +
        'use the relayer of a running gateway: an anchor would be lost.',
    )
    .requiredOption('--rpc <url>', 'JSON-RPC endpoint of the chain', parseRpcUrl)
    .option(
      '--timeout <seconds>',
      'longest wait for the block',
      parseSeconds,
      TRANSACTION_TIMEOUT_SECONDS,
    )
    .option('--json', 'print one JSON object')
    .addHelpText('after', '\nExit codes: 0 the contract is there, 1 it is not, 2 usage.')
    .action(async (options: DeployOptions) => {
      const { runDeployment } = await import('../contract-deployment.ts')
      await runDeployment(options)
    })
}
