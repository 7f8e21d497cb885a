import { keccak_256 } from '@noble/hashes/sha3.js'
import { concatBytes, decodeHex, encodeHex } from '../bytes.ts'
import artifact from './artifact.json' with { type: 'json' }

/**
 * The compiled contract (contracts/Affidavit.sol), 0x hex. `bytecode` creates the contract
 * (no constructor arguments, no value). The created contract then has the code `deployedBytecode`
 * on every chain. A test recompiles the source and compares all bytes with artifact.json.
 */
export const AFFIDAVIT: {
  readonly compiler: string
  readonly abi: readonly object[]
  readonly bytecode: string
  readonly deployedBytecode: string
} = artifact

/**
 * The deterministic deployment proxy (github.com/Arachnid/deterministic-deployment-proxy). Its
 * address is the same on every chain. Its call data is 32 bytes of salt, then the creation code.
 */
const CREATE2_PROXY = '0x4e59b44847b379578588920ca78fbf26c0b4956c'
const SALT = `0x${'00'.repeat(32)}`

/**
 * The deployment of the contract. A transaction from any sender to `proxy` with `data` and no value
 * creates the contract at `address` (EIP-1014). The address changes only if the bytecode changes.
 * All values are 0x, lower case.
 */
export const DEPLOYMENT: {
  readonly proxy: string
  readonly data: string
  readonly address: string
} = {
  proxy: CREATE2_PROXY,
  data: `${SALT}${AFFIDAVIT.bytecode.slice(2)}`,
  address: create2Address(AFFIDAVIT.bytecode),
}

/** Computes the address without ethers, because audits load this file and do not have ethers. */
function create2Address(bytecode: string): string {
  const parts = [CREATE2_PROXY, SALT].map((text) => decodeHex(text.slice(2)))
  const code = keccak_256(decodeHex(bytecode.slice(2)))
  return `0x${encodeHex(keccak_256(concatBytes(Uint8Array.of(0xff), ...parts, code)).subarray(-20))}`
}
