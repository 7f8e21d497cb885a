import type { ChainFacts, NamedBlocks } from '#attestation/evidence/policy.ts'
import type { AskedGateway } from './ask-gateway.ts'
import { AffidavitError } from './errors.ts'
import { readTwice } from './gateway.ts'
import { createRpc, type Rpc, RpcError, readQuantity, toQuantity } from './rpc.ts'

/**
 * Does the same as readChainFacts, but throws AffidavitError `unreachable` instead of RpcError, and
 * `invalid_options` for the endpoint of another chain.
 */
export async function fetchChainFacts(
  { fetch, timeoutMs }: Pick<AskedGateway, 'fetch' | 'timeoutMs'>,
  url: string,
  blocks: NamedBlocks,
): Promise<ChainFacts> {
  const rpc = createRpc({ url, fetch, timeoutMs })
  const facts = await readChainFacts(rpc, blocks).catch((cause: unknown) => {
    throw cause instanceof RpcError ? unreachableChain(cause) : cause
  })
  const other = sayOtherChain(facts, blocks)
  if (other !== null) throw new AffidavitError('invalid_options', other)
  return facts
}

/** Null if the endpoint is of the chain that the blocks are of. */
export function sayOtherChain(facts: ChainFacts, { chainId }: NamedBlocks): string | null {
  return chainId === null || facts.chainId === chainId
    ? null
    : `expected an endpoint of chain ${chainId}, got chain ${facts.chainId}`
}

/** Throws AffidavitError `invalid_options` for a value that is neither a URL nor left out. */
export function checkRpc(url: unknown): void {
  if (url !== undefined && !(typeof url === 'string' && URL.canParse(url)))
    throw new AffidavitError('invalid_options', 'expected rpc to be a URL')
}

export function unreachableChain(cause: RpcError): AffidavitError {
  return new AffidavitError('unreachable', `the chain's endpoint: ${cause.message}`, { cause })
}

/**
 * Reads the facts that verifyBundle needs. Reads no block for a number that is null. Throws
 * RpcError. Does NOT show that the answers are true: you must trust the endpoint's operator.
 */
export async function readChainFacts(
  rpc: Rpc,
  { anchor, provider }: NamedBlocks,
): Promise<ChainFacts> {
  const ask = (method: string, params: readonly unknown[]) =>
    readTwice(() => rpc.call(method, params), { signal: undefined, isBroken })
  const readBlock = (number: number | null) =>
    number === null ? null : ask('eth_getBlockByNumber', [toQuantity(number), false])
  const [chainId, block, newest, providerBlock] = await Promise.all([
    ask('eth_chainId', []),
    readBlock(anchor),
    ask('eth_blockNumber', []),
    readBlock(provider),
  ])
  return {
    chainId: countOf(chainId),
    blockHash: hashOf(block),
    newestBlock: countOf(newest),
    ...(provider === null ? {} : { providerBlock: timedBlockOf(providerBlock) }),
  }
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

function timedBlockOf(block: unknown): ChainFacts['providerBlock'] {
  const hash = hashOf(block)
  const stated = typeof block === 'object' && block && 'timestamp' in block ? block.timestamp : null
  return hash === null ? null : { hash, timestamp: countOf(stated) }
}
