import { hasCode } from '../chain/chain-reads.ts'
import { DEPLOYMENT } from '../chain/contract/artifact.ts'
import type { Rpc } from '../chain/rpc.ts'

/** Where the contract is on every local chain, also after its state was lost. 0x, lower case. */
export const LOCAL_CONTRACT = DEPLOYMENT.address

const MINED_POLL_MS = 5
const MINED_TIMEOUT_MS = 60_000

/**
 * Deploys the contract when it is not there. `deployer` is an account whose key the chain itself
 * holds. Throws RpcError, or Error when no contract appears at LOCAL_CONTRACT in time.
 */
export async function deployContract(rpc: Rpc, deployer: string): Promise<void> {
  if (await hasCode(rpc, LOCAL_CONTRACT)) return
  const { proxy: to, data } = DEPLOYMENT
  await rpc.call('eth_sendTransaction', [{ from: deployer, to, data }])
  const until = performance.now() + MINED_TIMEOUT_MS
  while (!(await hasCode(rpc, LOCAL_CONTRACT))) {
    if (performance.now() > until)
      throw new Error(`the contract is not at ${LOCAL_CONTRACT} after its deployment`)
    await new Promise((resolve) => setTimeout(resolve, MINED_POLL_MS))
  }
}
