import type { ChainFacts, NamedBlocks } from '#attestation/evidence/policy.ts'
import { printable } from '#attestation/report/printable.ts'
import { readChainFacts } from '#client/chain-facts.ts'
import { createRpc, RpcError } from '#client/rpc.ts'
import { CliError, EXIT_CODES } from '../faults.ts'

/** Does the same as readChainFacts. Throws ChainUnreached. */
export async function reachChainFacts(url: string, blocks: NamedBlocks): Promise<ChainFacts> {
  return await readChainFacts(createRpc({ url }), blocks).catch(throwUnreached)
}

/** Throws ChainUnreached in place of RpcError, and any other fault as it is. */
export function throwUnreached(fault: unknown): never {
  throw fault instanceof RpcError ? new ChainUnreached(printable(fault.message)) : fault
}

/** The chain's endpoint gave no usable answer. Checks without the chain are still possible. */
export class ChainUnreached extends CliError {
  constructor(reason: string) {
    super(`the chain cannot be reached: ${reason}`, EXIT_CODES.unavailable)
  }
}
