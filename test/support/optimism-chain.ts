import { randomBytes } from 'node:crypto'
import { DEPLOYMENT } from '#attestation/contract/artifact.ts'
import { createRpc, type Rpc } from '#client/rpc.ts'
import { hasCode } from '#src/chain/chain-reads.ts'
import { findAnvilBinary } from '#src/local/anvil-process.ts'
import { awaitFreePort } from '#src/local/free-port.ts'
import { spawnGuarded } from '#src/local/guarded-process.ts'
import { recordLog } from './chain.ts'
import { until } from './until.ts'

/** A local chain of the OP stack with the contract, which mines each transaction at once. */
export type OptimismChain = {
  readonly rpc: Rpc
  readonly rpcUrl: string
  readonly chainId: number
  /** 0x, lower case. */
  readonly contract: string
  /** Key of an account with ether. */
  readonly relayerKey: string
  /** Sends a deposit (type 0x7e), as each block of such a chain has one; gives its hash. */
  sendDeposit(members?: Readonly<Record<string, unknown>>): Promise<string>
  dispose(): Promise<void>
}

/** Accounts 8, 9 and 0 of the mnemonic that every anvil prints. */
const RELAYER_KEY = '0xdbda1821b80551c9d65939329250298aa3472ba22feea921c0cf5d620ea67b97'
const DEPLOYER = '0xa0ee7a142d267c1f36714e4a8f75612f20a79720'
const DEPOSITOR = '0xf39fd6e51aad88f6f4ce6ab8827279cfffb92266'
/** Not anvil's own id: a gateway treats that as a development chain. */
const CHAIN_ID = 8_453_001

/** Starts anvil's optimism network on a free port. */
export async function startOptimismChain(): Promise<OptimismChain> {
  const port = await awaitFreePort(0)
  const rpcUrl = `http://127.0.0.1:${port}`
  const words = `--network optimism --host 127.0.0.1 --port ${port} --chain-id ${CHAIN_ID} --quiet`
  const binary = await findAnvilBinary(process.platform, process.arch)
  const anvil = await spawnGuarded('anvil', [binary, ...words.split(' ')], recordLog().log)
  const rpc = createRpc({ url: rpcUrl })
  const isUp = () =>
    rpc.call('eth_chainId', []).then(
      () => true,
      () => false,
    )
  await until('anvil answers', isUp, 60_000)
  const { proxy: to, data, address: contract } = DEPLOYMENT
  await rpc.call('eth_sendTransaction', [{ from: DEPLOYER, to, data }])
  await until('the contract is there', () => hasCode(rpc, contract), 30_000)
  return {
    rpc,
    rpcUrl,
    chainId: CHAIN_ID,
    contract,
    relayerKey: RELAYER_KEY,
    async sendDeposit(members = {}) {
      const deposit = {
        type: '0x7e',
        sourceHash: `0x${randomBytes(32).toString('hex')}`,
        from: DEPOSITOR,
        to: DEPLOYER,
        value: '0x1',
        mint: '0x5',
        gas: '0x186a0',
        isSystemTx: false,
        input: '0x440a5e20',
        ...members,
      }
      return String(await rpc.call('eth_sendTransaction', [deposit]))
    },
    async dispose() {
      await rpc.close()
      await anvil.stop()
    },
  }
}
