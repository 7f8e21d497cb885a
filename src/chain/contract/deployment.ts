import { getCreate2Address, keccak256 } from 'ethers'
import { AFFIDAVIT } from './artifact.ts'

/**
 * The deterministic deployment proxy, the same account on every chain that has it
 * (github.com/Arachnid/deterministic-deployment-proxy). Call data: 32 bytes of salt, then creation code.
 */
const CREATE2_PROXY = '0x4e59b44847b379578588920ca78fbf26c0b4956c'
const SALT = `0x${'00'.repeat(32)}`

/**
 * How the contract is put on a chain: a transaction without value that brings `data` to `proxy` makes it at `address`, whoever
 * sends it and whenever (EIP-1014). The address changes with the bytecode alone. All 0x, lower case.
 */
export const DEPLOYMENT: { readonly proxy: string; readonly data: string; readonly address: string } = {
  proxy: CREATE2_PROXY,
  data: `${SALT}${AFFIDAVIT.bytecode.slice(2)}`,
  address: getCreate2Address(CREATE2_PROXY, SALT, keccak256(AFFIDAVIT.bytecode)).toLowerCase(),
}
