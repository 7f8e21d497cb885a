import type { ChainFacts } from '#attestation/evidence/policy.ts'
import type { AskedGateway } from './ask-gateway.ts'
import { AffidavitError } from './errors.ts'
import { readTwice } from './gateway.ts'
import { createRpc, type Rpc, RpcError, readQuantity, toQuantity } from './rpc.ts'

/** Does the same as readChainFacts, but throws AffidavitError `unreachable` instead of RpcError. */
export async function fetchChainFacts(
  { fetch, timeoutMs }: Pick<AskedGateway, 'fetch' | 'timeoutMs'>,
  url: string,
  blockNumber: number | null,
): Promise<ChainFacts> {
  try {
    return await readChainFacts(createRpc({ url, fetch, timeoutMs }), blockNumber)
  } catch (cause) {
    if (!(cause instanceof RpcError)) throw cause
    throw new AffidavitError('unreachable', `the chain's endpoint: ${cause.message}`, { cause })
  }
}

/**
 * Reads the facts that verifyBundle needs. If `blockNumber` is null, reads no block. Throws
 * RpcError. Does NOT show that the answers are true: you must trust the endpoint's operator.
 */
export async function readChainFacts(rpc: Rpc, blockNumber: number | null): Promise<ChainFacts> {
  const ask = (method: string, params: readonly unknown[]) =>
    readTwice(() => rpc.call(method, params), { signal: undefined, isBroken })
  const [chainId, block, newest] = await Promise.all([
    ask('eth_chainId', []),
    blockNumber === null ? null : ask('eth_getBlockByNumber', [toQuantity(blockNumber), false]),
    ask('eth_blockNumber', []),
  ])
  return { chainId: countOf(chainId), blockHash: hashOf(block), newestBlock: countOf(newest) }
}

function isBroken(fault: unknown): boolean {
  return fault instanceof RpcError && fault.code === 'unreachable'
}

function countOf(value: unknown): number {
  const count = readQuantity(value)
  if (count === null) throw new RpcError('bad_answer', 'expected numbers in hex')
  return count
}

/** Returns null if the chain does not have this block. */
function hashOf(block: unknown): string | null {
  if (block === null) return null
  const hash = typeof block === 'object' && block && 'hash' in block ? block.hash : undefined
  if (typeof hash !== 'string' || !/^0x[0-9a-fA-F]{64}$/.test(hash))
    throw new RpcError('bad_answer', 'expected a block with its hash')
  return hash.toLowerCase()
}
