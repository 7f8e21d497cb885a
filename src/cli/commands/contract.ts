import type { Command } from 'commander'
import { createRpc, RpcError } from '../../chain/rpc.ts'
import { ChainFault } from '../audit/chain.ts'
import { readDeployerKey } from '../config.ts'
import type { Deployment } from '../contract-deployment.ts'
import { CliError } from '../exit-codes.ts'
import { parseRpcUrl } from '../expected-evidence.ts'
import { parseSeconds } from '../options.ts'
import { printable } from '../printable.ts'

/** Fifteen of Ethereum's blocks. */
const TIMEOUT_SECONDS_DEFAULT = 180

type DeployOptions = { readonly rpc: string; readonly timeout: number; readonly json?: boolean }

/** Adds `contract deploy`, for the operator: a first set-up begins with it, and every release that changes the contract. */
export function registerContract(program: Command): void {
  const contract = program
    .command('contract')
    .description('put the anchor contract of this release on a chain')
    .helpCommand(false)
  contract
    .command('deploy')
    .summary('deploy the contract, or find that it is there')
    .description(
      'Deploy the anchor contract of this release, at the address that it has on every chain, and compare the code that ' +
        'stands there. Nothing is sent when it is there already. DEPLOYER_PRIVATE_KEY holds the key of the account that ' +
        'pays; any will do, it gets no rights. Not the relayer of a gateway that runs: an anchor would be lost.',
    )
    .requiredOption('--rpc <url>', 'JSON-RPC endpoint of the chain', parseRpcUrl)
    .option('--timeout <seconds>', 'longest to wait for the block', parseSeconds, TIMEOUT_SECONDS_DEFAULT)
    .option('--json', 'print one JSON object')
    .addHelpText('after', '\nExit codes: 0 the contract is there, 1 it is not, 2 usage.')
    .action(deploy)
}

async function deploy({ rpc: url, timeout, json }: DeployOptions): Promise<void> {
  const deployerKey = readDeployerKey()
  // It brings ethers, which takes longer to load than all other commands do.
  const { deployContract } = await import('../contract-deployment.ts')
  const tell = (line: string) => process.stderr.write(`${line}\n`)
  const rpc = createRpc({ url })
  try {
    const deployment = await deployContract({ rpc, deployerKey, timeoutMs: timeout * 1000, tell })
    tell(deployment.sent === null ? 'The contract is there already.' : 'The contract is deployed.')
    process.stdout.write(json ? formatJson(deployment) : formatText(deployment))
  } catch (fault) {
    if (fault instanceof RpcError || fault instanceof ChainFault)
      throw new CliError(`the chain cannot be asked, or refused: ${printable(fault.message)}`)
    throw fault
  } finally {
    await rpc.close()
  }
}

function formatJson({ address, chainId, sent }: Deployment): string {
  const object = {
    address,
    chain_id: chainId,
    deployed: sent !== null,
    transaction: sent?.txHash ?? null,
    block: sent?.blockNumber ?? null,
    gas_used: sent?.gasUsed ?? null,
  }
  return `${JSON.stringify(object, null, 2)}\n`
}

function formatText({ address, chainId, sent }: Deployment): string {
  const lines = [`address      ${address}`, `chain id     ${chainId}`]
  if (sent !== null)
    lines.push(
      `transaction  ${sent.txHash}`,
      `block        ${sent.blockNumber}`,
      `gas used     ${sent.gasUsed}`,
    )
  return `${lines.join('\n')}\n`
}
