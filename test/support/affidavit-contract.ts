import { createHash } from 'node:crypto'
import { Interface, type Result } from 'ethers'
import { AFFIDAVIT } from '#attestation/contract/artifact.ts'
import type { TestChain } from './chain.ts'

/** The contract's interface, for encoding calls and reading answers, events and errors. */
export const CONTRACT = new Interface(AFFIDAVIT.abi)

/**
 * Any funded account of the local chain, but not the relayer's. The contract accepts any sender.
 */
const SENDER = '0xf39fd6e51aad88f6f4ce6ab8827279cfffb92266'

/** Calls a view of the contract. */
export async function readContract(
  chain: Pick<TestChain, 'rpc' | 'contract'>,
  name: string,
  values: readonly unknown[],
): Promise<Result> {
  const data = CONTRACT.encodeFunctionData(name, values)
  const answer = await chain.rpc.call('eth_call', [{ to: chain.contract, data }, 'latest'])
  return CONTRACT.decodeFunctionResult(name, String(answer))
}

export type AnchorOutcome = {
  readonly gasUsed: number
  readonly events: readonly { readonly name: string; readonly values: readonly unknown[] }[]
}

/** Sends an `anchor` transaction and gives what it did; throws when it reverts. */
export async function sendAnchor(
  chain: Pick<TestChain, 'rpc' | 'contract'>,
  head: {
    readonly size: number | bigint
    readonly root: Uint8Array
    readonly signature: Uint8Array
  },
): Promise<AnchorOutcome> {
  const data = CONTRACT.encodeFunctionData('anchor', [head.size, head.root, head.signature])
  const hash = await chain.rpc.call('eth_sendTransaction', [
    { from: SENDER, to: chain.contract, data, gas: '0x249f0' },
  ])
  for (;;) {
    const receipt = (await chain.rpc.call('eth_getTransactionReceipt', [hash])) as Receipt | null
    if (receipt !== null) return readReceipt(receipt)
    await new Promise((resolve) => setTimeout(resolve, 2))
  }
}

type Receipt = {
  readonly status: string
  readonly gasUsed: string
  readonly logs: readonly { readonly topics: readonly string[]; readonly data: string }[]
}

function readReceipt(receipt: Receipt): AnchorOutcome {
  if (receipt.status !== '0x1') throw new Error('the transaction reverted')
  const events = receipt.logs.map((entry) => {
    const parsed = CONTRACT.parseLog(entry)
    if (parsed === null)
      throw new Error('the contract emitted an event that is not in its artifact')
    return { name: parsed.name, values: [...parsed.args] }
  })
  return { gasUsed: Number(receipt.gasUsed), events }
}

/**
 * The custom error with which `anchor` reverts, tried without a transaction; null when it does not
 * revert.
 */
export async function anchorError(
  chain: TestChain,
  head: {
    readonly size: number | bigint
    readonly root: Uint8Array
    readonly signature: Uint8Array
  },
): Promise<string | null> {
  const data = CONTRACT.encodeFunctionData('anchor', [head.size, head.root, head.signature])
  const response = await fetch(chain.rpcUrl, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify({
      jsonrpc: '2.0',
      id: 1,
      method: 'eth_call',
      params: [{ to: chain.contract, data }, 'latest'],
    }),
  })
  const answer = (await response.json()) as { readonly error?: { readonly data?: string } }
  if (answer.error === undefined) return null
  return CONTRACT.parseError(answer.error.data ?? '0x')?.name ?? 'no error of the contract'
}

/**
 * The root of a Merkle tree by the definition in RFC 9162 section 2.1.1, recursive and slow, to
 * compare other implementations with.
 */
export function plainRoot(leaves: readonly Uint8Array[]): Uint8Array {
  const [first] = leaves
  if (first === undefined) return sha256()
  if (leaves.length === 1) return sha256([0x00], first)
  const split = largestPowerBelow(leaves.length)
  return sha256([0x01], plainRoot(leaves.slice(0, split)), plainRoot(leaves.slice(split)))
}

/** The inclusion path of RFC 9162 section 2.1.3.1, by the same recursion. */
export function plainPath(index: number, leaves: readonly Uint8Array[]): readonly Uint8Array[] {
  if (leaves.length <= 1) return []
  const split = largestPowerBelow(leaves.length)
  const [left, right] = [leaves.slice(0, split), leaves.slice(split)]
  return index < split
    ? [...plainPath(index, left), plainRoot(right)]
    : [...plainPath(index - split, right), plainRoot(left)]
}

function largestPowerBelow(count: number): number {
  let power = 1
  while (power * 2 < count) power *= 2
  return power
}

function sha256(...parts: readonly (Uint8Array | readonly number[])[]): Uint8Array {
  const hash = createHash('sha256')
  for (const part of parts) hash.update(Uint8Array.from(part))
  return hash.digest()
}
