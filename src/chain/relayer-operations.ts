import { type Rpc, RpcError } from '../../client/rpc.ts'
import type { RelayerDescription, RelayerOperations } from '../api/control-operations.ts'
import { fetchAccountFacts } from './chain-reads.ts'
import type { RelayersStore } from './relayers-store.ts'

/** Gives the operator's operations on the relayers of a database, for this process's chain. */
export function createRelayerOperations({
  relayers,
  rpc,
  chainId,
  current,
}: {
  readonly relayers: Pick<RelayersStore, 'list' | 'listBacklogs'>
  readonly rpc: Rpc
  readonly chainId: number
  /** The relayer that this gateway signs with, 0x, lower case. */
  readonly current: string
}): RelayerOperations {
  return {
    async list() {
      const [stored, backlogs] = await Promise.all([
        relayers.list(),
        relayers.listBacklogs(chainId),
      ])
      const nextOf = new Map(stored.map(({ address, nextNonce }) => [address, nextNonce]))
      const addresses = [current, ...[...nextOf.keys()].filter((address) => address !== current)]
      return Promise.all(
        addresses.map(async (address): Promise<RelayerDescription> => {
          const backlog = backlogs.find(({ relayer }) => relayer === address)
          return {
            address,
            current: address === current,
            next_nonce: nextOf.get(address) ?? null,
            waiting: backlog?.waiting ?? 0,
            unconfirmed: backlog?.unconfirmed ?? 0,
            oldest_at: backlog?.oldestAt ?? null,
            ...(await askChain(rpc, address)),
          }
        }),
      )
    },
  }
}

/**
 * The chain's figures, or why they are missing. The other figures are shown even while the chain is
 * away.
 */
async function askChain(
  rpc: Rpc,
  address: string,
): Promise<Pick<RelayerDescription, 'balance_wei' | 'chain_nonce' | 'pending_nonce' | 'fault'>> {
  try {
    const { balanceWei, nonce, pendingNonce } = await fetchAccountFacts(rpc, address)
    return {
      balance_wei: String(balanceWei),
      chain_nonce: nonce,
      pending_nonce: pendingNonce,
      fault: '',
    }
  } catch (error) {
    if (!(error instanceof RpcError)) throw error
    return { balance_wei: null, chain_nonce: null, pending_nonce: null, fault: error.message }
  }
}
