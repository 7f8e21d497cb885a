import { z } from 'zod'
import { type Rpc, RpcError } from '#client/rpc.ts'
import { defineAct } from '../accounts/acts.ts'
import { fetchAccountFacts } from './chain-reads.ts'
import type { RelayersStore } from './relayers-store.ts'

/** A relayer in a reply: the account pays for anchors, or paid for anchors before. */
const relayerDescription = z.object({
  /** 0x, lower case. */
  address: z.string(),
  /** True if the gateway that answers signs with this account. */
  current: z.boolean(),
  /** The next nonce in the database. Null before the account's first anchor. */
  next_nonce: z.int().nullable(),
  /** Number of pending anchors. */
  pending: z.int(),
  /** Number of anchors without enough confirmations. Pending anchors count too. */
  unconfirmed: z.int(),
  /** When the oldest unconfirmed anchor was made, Unix seconds. Null without such an anchor. */
  oldest_at: z.int().nullable(),
  /**
   * Decimal wei. This and the next two members come from the chain. All three are null if the chain
   * does not answer.
   */
  balance_wei: z.string().nullable(),
  chain_nonce: z.int().nullable(),
  pending_nonce: z.int().nullable(),
  /** Why the chain did not answer. Empty if it answered. */
  fault: z.string(),
})
export type RelayerDescription = Readonly<z.output<typeof relayerDescription>>

export const relayerActs = {
  list: defineAct({
    method: 'GET',
    path: '/v1/admin/relayers',
    summary: 'The accounts that pay or paid for anchors, and their anchors that wait',
    scope: 'admin',
    reply: {
      name: 'AdminRelayers',
      schema: z.strictObject({ relayers: z.array(relayerDescription).readonly() }),
    },
    run: (_, place: { readonly listRelayers: () => Promise<readonly RelayerDescription[]> }) =>
      place.listRelayers(),
    trail: 'changes nothing',
    answer: (relayers) => ({ relayers }),
  }),
}

/** The current relayer is first. */
export async function listRelayers({
  relayers,
  rpc,
  chainId,
  current,
}: {
  readonly relayers: Pick<RelayersStore, 'list' | 'listBacklogs'>
  readonly rpc: Rpc
  readonly chainId: number
  /** This gateway signs with this relayer. 0x, lower case. */
  readonly current: string
}): Promise<readonly RelayerDescription[]> {
  const [stored, backlogs] = await Promise.all([relayers.list(), relayers.listBacklogs(chainId)])
  const nextOf = new Map(stored.map(({ address, nextNonce }) => [address, nextNonce]))
  const addresses = [current, ...[...nextOf.keys()].filter((address) => address !== current)]
  return Promise.all(
    addresses.map(async (address): Promise<RelayerDescription> => {
      const backlog = backlogs.find(({ relayer }) => relayer === address)
      return {
        address,
        current: address === current,
        next_nonce: nextOf.get(address) ?? null,
        pending: backlog?.pending ?? 0,
        unconfirmed: backlog?.unconfirmed ?? 0,
        oldest_at: backlog?.oldestAt ?? null,
        ...(await askChain(rpc, address)),
      }
    }),
  )
}

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
