import { getCreate2Address, keccak256 } from 'ethers'
import { AFFIDAVIT } from '../../contracts/artifact.ts'
import { hasCode } from '../chain/chain-reads.ts'
import type { Rpc } from '../chain/rpc.ts'

/**
 * The deterministic deployment proxy, which anvil has from its first block and most public chains have too
 * (github.com/Arachnid/deterministic-deployment-proxy). Call data: 32 bytes of salt, then creation code.
 */
const CREATE2_PROXY = '0x4e59b44847b379578588920ca78fbf26c0b4956c'
const SALT = `0x${'00'.repeat(32)}`

/**
 * Where the contract is on every local chain: the address depends on its bytecode alone (EIP-1014), not on an account's
 * nonce, so it is the same after the state was lost, and another one as soon as the contract is changed. 0x, lower case.
 */
export const LOCAL_CONTRACT = getCreate2Address(
  CREATE2_PROXY,
  SALT,
  keccak256(AFFIDAVIT.bytecode),
).toLowerCase()

const MINED_POLL_MS = 5
const MINED_TIMEOUT_MS = 60_000

/**
 * Deploys the contract when it is not there. `deployer` is an account whose key the chain itself holds.
 * Throws RpcError, or Error when no contract appears at LOCAL_CONTRACT in time.
 */
export async function deployContract(rpc: Rpc, deployer: string): Promise<void> {
  if (await hasCode(rpc, LOCAL_CONTRACT)) return
  const data = `${SALT}${AFFIDAVIT.bytecode.slice(2)}`
  await rpc.call('eth_sendTransaction', [{ from: deployer, to: CREATE2_PROXY, data }])
  const until = performance.now() + MINED_TIMEOUT_MS
  while (!(await hasCode(rpc, LOCAL_CONTRACT))) {
    if (performance.now() > until)
      throw new Error(`the contract is not at ${LOCAL_CONTRACT} after its deployment`)
    await new Promise((resolve) => setTimeout(resolve, MINED_POLL_MS))
  }
}
