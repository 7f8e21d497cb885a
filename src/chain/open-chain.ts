import { createRpc, type Rpc, RpcError } from '#client/rpc.ts'
import type { Logger } from '../observability/logger.ts'
import { StartFailure } from '../runtime/starting.ts'
import { fetchChainView, hasCode } from './chain-reads.ts'
import type { RemoteChainConfig } from './settings.ts'
import { relayerAddress } from './sign-anchor.ts'

export type Chain = {
  readonly rpc: Rpc
  /** The RPC URL that users see. Null for the operator's chain, whose URL may contain a secret. */
  readonly publicUrl: string | null
  readonly chainId: number
  /** 0x, lower case. */
  readonly contract: string
  readonly relayer: Relayer
  stop(): Promise<void>
}

type Relayer = { readonly key: string; readonly address: string }

/** The local chain has anvil's default id, which wallets know as a development chain. */
export const DEVELOPMENT_CHAIN_ID = 31_337

export function relayerWith(key: string): Relayer {
  return { key, address: relayerAddress(key) }
}

/**
 * With a configured chain id, the chain need not be reachable at the start. Rejects with
 * StartFailure for another id, or without a contract at the address.
 */
export async function connectChain(
  config: RemoteChainConfig,
  { isProduction, log }: { readonly isProduction: boolean; readonly log: Logger },
): Promise<Chain> {
  const rpc = createRpc({ url: config.rpcUrl })
  const relayer = relayerWith(config.relayerKey)
  const open = (chainId: number): Chain => ({
    rpc,
    publicUrl: null,
    chainId,
    contract: config.contract,
    relayer,
    stop: () => rpc.close(),
  })
  try {
    return open(await checkChain(config, { rpc, relayer: relayer.address, isProduction }))
  } catch (error) {
    if (error instanceof RpcError && config.chainId !== null) {
      log.warn({ err: error }, 'chain cannot be reached, anchors are sent later')
      return open(config.chainId)
    }
    await rpc.close()
    if (!(error instanceof RpcError)) throw error
    throw new StartFailure(
      `chain: CHAIN_RPC_URL: ${error.message}; give CHAIN_ID to start without it`,
    )
  }
}

async function checkChain(
  config: RemoteChainConfig,
  {
    rpc,
    relayer,
    isProduction,
  }: { readonly rpc: Rpc; readonly relayer: string; readonly isProduction: boolean },
): Promise<number> {
  const { chainId } = await fetchChainView(rpc, relayer)
  const expected = config.chainId ?? chainId
  if (chainId !== expected)
    throw new StartFailure(`chain: expected CHAIN_ID ${expected}, got ${chainId}`)
  if (isProduction && chainId === DEVELOPMENT_CHAIN_ID)
    throw new StartFailure(
      `chain: production refuses chain ${chainId}, which is a development chain's id`,
    )
  if (!(await hasCode(rpc, config.contract)))
    throw new StartFailure(
      `chain: expected a contract at CONTRACT_ADDRESS ${config.contract}, found none`,
    )
  return chainId
}
