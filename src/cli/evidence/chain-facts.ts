import type { ChainFacts } from '#attestation/evidence/policy.ts'
import { printable } from '#attestation/report/printable.ts'
import { readChainFacts } from '#client/chain-facts.ts'
import { createRpc, RpcError } from '#client/rpc.ts'
import { CliError, EXIT_CODES } from '../faults.ts'

/** Does the same as readChainFacts. Throws ChainUnreached. */
export async function reachChainFacts(
  url: string,
  blockNumber: number | null,
): Promise<ChainFacts> {
  try {
    return await readChainFacts(createRpc({ url }), blockNumber)
  } catch (fault) {
    if (fault instanceof RpcError) throw new ChainUnreached(printable(fault.message))
    throw fault
  }
}

/** The chain's endpoint gave no usable answer. Checks without the chain are still possible. */
export class ChainUnreached extends CliError {
  constructor(reason: string) {
    super(`the chain cannot be reached: ${reason}`, EXIT_CODES.unavailable)
  }
}
