import { getCreate2Address, keccak256 } from 'ethers'
import artifact from './artifact.json' with { type: 'json' }

/**
 * The compiled contract (src/chain/contract/Affidavit.sol). `bytecode` creates it (no constructor
 * arguments, no value); `deployedBytecode` is what then stands at its address, the same on every
 * chain since it has no immutables. Both 0x hex. A test recompiles the source and compares every
 * byte of the file.
 */
export const AFFIDAVIT: {
  readonly compiler: string
  readonly abi: readonly object[]
  readonly bytecode: string
  readonly deployedBytecode: string
} = artifact

/**
 * The deterministic deployment proxy, the same account on every chain that has it
 * (github.com/Arachnid/deterministic-deployment-proxy). Call data: 32 bytes of salt, then creation
 * code.
 */
const CREATE2_PROXY = '0x4e59b44847b379578588920ca78fbf26c0b4956c'
const SALT = `0x${'00'.repeat(32)}`

/**
 * How the contract is put on a chain: a transaction without value that brings `data` to `proxy`
 * makes it at `address`, whoever sends it and whenever (EIP-1014). The address changes with the
 * bytecode alone. All 0x, lower case.
 */
export const DEPLOYMENT: {
  readonly proxy: string
  readonly data: string
  readonly address: string
} = {
  proxy: CREATE2_PROXY,
  data: `${SALT}${AFFIDAVIT.bytecode.slice(2)}`,
  address: getCreate2Address(CREATE2_PROXY, SALT, keccak256(AFFIDAVIT.bytecode)).toLowerCase(),
}
