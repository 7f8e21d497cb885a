import { relayerAddress } from '../chain/anchor-transaction.ts'
import { fetchChainView, hasCode } from '../chain/chain-reads.ts'
import { createRpc, type Rpc, RpcError } from '../chain/rpc.ts'
import type { ChainConfig } from '../config.ts'
import { LOCAL_CHAIN_ID, LOCAL_RELAYER_KEY, startAnvil } from '../local/anvil.ts'
import { LOCAL_CONTRACT } from '../local/contract-deployment.ts'
import { StartFailure } from '../local/supervised-process.ts'
import type { Logger } from '../observability/logger.ts'

/** The chain that anchors go to. */
export type Chain = {
  readonly rpc: Rpc
  /** For people; null when it is the operator's, whose URL may hold a secret. */
  readonly publicUrl: string | null
  readonly chainId: number
  /** 0x, lower case. */
  readonly contract: string
  readonly relayer: { readonly key: string; readonly address: string }
  stop(): Promise<void>
}

/** What is known of the local chain before it runs, so that the enclave need not wait for it. */
export const LOCAL_DOMAIN = { chainId: LOCAL_CHAIN_ID, contract: LOCAL_CONTRACT } as const

/** Starts the local chain in the data folder. Rejects with StartFailure. */
export async function startLocalChain(options: {
  readonly dataFolder: string
  readonly port: number
  readonly log: Logger
  readonly onRestart: () => void
}): Promise<Chain> {
  const anvil = await startAnvil({ ...options, folder: options.dataFolder })
  const rpc = createRpc({ url: anvil.rpcUrl })
  return {
    rpc,
    publicUrl: anvil.rpcUrl,
    ...LOCAL_DOMAIN,
    relayer: relayerOf(LOCAL_RELAYER_KEY),
    stop: async () => {
      await rpc.close()
      await anvil.stop()
    },
  }
}

/**
 * Connects to the operator's chain. One that cannot be reached is no fault when its id was given: anchors are then sent
 * later. Rejects with StartFailure when it is another chain, or has no contract at the address.
 */
export async function connectChain(
  config: Extract<ChainConfig, { kind: 'remote' }>,
  { isProduction, log }: { readonly isProduction: boolean; readonly log: Logger },
): Promise<Chain> {
  const rpc = createRpc({ url: config.rpcUrl })
  const relayer = relayerOf(config.relayerKey)
  try {
    const chainId = await checkChain(config, { rpc, relayer: relayer.address, isProduction })
    return { rpc, publicUrl: null, chainId, contract: config.contract, relayer, stop: () => rpc.close() }
  } catch (error) {
    if (error instanceof RpcError && config.chainId !== null) {
      log.warn({ err: error }, 'chain cannot be reached, anchors are sent later')
      return {
        rpc,
        publicUrl: null,
        chainId: config.chainId,
        contract: config.contract,
        relayer,
        stop: () => rpc.close(),
      }
    }
    await rpc.close()
    if (!(error instanceof RpcError)) throw error
    throw new StartFailure(`chain: CHAIN_RPC_URL: ${error.message}; give CHAIN_ID to start without it`)
  }
}

async function checkChain(
  config: Extract<ChainConfig, { kind: 'remote' }>,
  {
    rpc,
    relayer,
    isProduction,
  }: { readonly rpc: Rpc; readonly relayer: string; readonly isProduction: boolean },
): Promise<number> {
  const { chainId } = await fetchChainView(rpc, relayer)
  const expected = config.chainId ?? chainId
  if (chainId !== expected) throw new StartFailure(`chain: expected CHAIN_ID ${expected}, got ${chainId}`)
  if (isProduction && chainId === LOCAL_CHAIN_ID)
    throw new StartFailure(`chain: production refuses chain ${chainId}, which is a development chain's id`)
  if (!(await hasCode(rpc, config.contract)))
    throw new StartFailure(`chain: expected a contract at CONTRACT_ADDRESS ${config.contract}, found none`)
  return chainId
}

function relayerOf(key: string): Chain['relayer'] {
  return { key, address: relayerAddress(key) }
}
