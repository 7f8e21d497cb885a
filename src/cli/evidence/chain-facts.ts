import type { ChainFacts, NamedBlocks } from '#attestation/evidence/policy.ts'
import { printable } from '#attestation/report/printable.ts'
import { readChainFacts, sayOtherChain } from '#client/chain-facts.ts'
import { createRpc, RpcError } from '#client/rpc.ts'
import { CliError, EXIT_CODES } from '../faults.ts'

/** Does the same as readChainFacts. Throws ChainUnreached, also for another chain. */
export async function reachChainFacts(url: string, blocks: NamedBlocks): Promise<ChainFacts> {
  const facts = await readChainFacts(createRpc({ url }), blocks).catch(throwUnreached)
  const other = sayOtherChain(facts, blocks)
  if (other !== null) throw new ChainUnreached(`--rpc: ${other}`, EXIT_CODES.usage)
  return facts
}

/** Throws ChainUnreached in place of RpcError, and any other fault as it is. */
export function throwUnreached(fault: unknown): never {
  if (!(fault instanceof RpcError)) throw fault
  throw new ChainUnreached(`the chain cannot be reached: ${printable(fault.message)}`)
}

/** The chain's endpoint gave no usable answer. Checks without the chain are still possible. */
export class ChainUnreached extends CliError {
  constructor(message: string, exitCode: number = EXIT_CODES.unavailable) {
    super(message, exitCode)
  }
}
