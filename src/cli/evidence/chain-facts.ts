import { z } from 'zod'
import type { ChainFacts } from '../../../attestation/evidence/policy.ts'
import { printable } from '../../../attestation/report/printable.ts'
import { fetchBlockHashes } from '../../chain/chain-reads.ts'
import { createRpc, Quantity, RpcError } from '../../chain/rpc.ts'
import { CliError, EXIT_CODES } from '../faults.ts'

/**
 * Asks the chain's endpoint at `url` for what verifyBundle wants of a chain: its id, its newest
 * block, and its block of the number that the bundle names (null: of none). Throws ChainUnreached
 * when the endpoint cannot be asked.
 *
 * Does NOT show that the endpoint tells the truth: it is believed as far as whoever runs it.
 */
export async function fetchChainFacts(
  url: string,
  blockNumber: number | null,
): Promise<ChainFacts> {
  const rpc = createRpc({ url })
  try {
    const chainId = Quantity.parse(await rpc.call('eth_chainId', []))
    const newestBlock = Quantity.parse(await rpc.call('eth_blockNumber', []))
    const hashes =
      blockNumber === null ? new Map<number, string>() : await fetchBlockHashes(rpc, [blockNumber])
    return { chainId, newestBlock, blockHash: hashes.get(blockNumber ?? -1) ?? null }
  } catch (fault) {
    if (fault instanceof RpcError) throw new ChainUnreached(printable(fault.message))
    if (fault instanceof z.ZodError) throw new ChainUnreached('expected numbers in hex')
    throw fault
  } finally {
    await rpc.close()
  }
}

/** The chain's endpoint gave no answer that can be used. What needs no chain can be checked. */
export class ChainUnreached extends CliError {
  constructor(reason: string) {
    super(`the chain cannot be reached: ${reason}`, EXIT_CODES.unavailable)
  }
}
