import type { ChainFacts } from '../attestation/evidence/policy.ts'
import { parseExactJson } from '../attestation/json/parse-strict.ts'
import { isJsonObject, type Json, memberOf } from '../attestation/json/value.ts'
import { AffidavitError, reasonOf } from './errors.ts'
import { type Fetch, type GatewayOptions, readAtMost, readTwice } from './gateway.ts'

/** Answers of a chain's endpoint to the three questions, bytes. */
const RPC_BYTES_MAX = 1024 * 1024

/**
 * Asks the chain's endpoint at `url` for what verifyBundle wants of a chain: its id, its newest
 * block, and its block of the number that the bundle names (null: of none). Throws AffidavitError
 * `unreachable`, also for answers that are none.
 *
 * Does NOT show that the endpoint tells the truth: it is believed as far as whoever runs it.
 */
export async function fetchChainFacts(
  { fetch, timeoutMs }: Pick<GatewayOptions, 'fetch' | 'timeoutMs'>,
  url: string,
  blockNumber: number | null,
): Promise<ChainFacts> {
  const ask = (method: string, params: readonly unknown[]) =>
    callRpc(url, { fetch, timeoutMs, method, params })
  const [chainId, block, newest] = await Promise.all([
    ask('eth_chainId', []),
    blockNumber === null
      ? null
      : ask('eth_getBlockByNumber', [`0x${blockNumber.toString(16)}`, false]),
    ask('eth_blockNumber', []),
  ])
  const hash = isJsonObject(block) ? memberOf(block, 'hash') : null
  if (hash !== null && typeof hash !== 'string') throw badChain(url)
  return { chainId: countOf(chainId, url), blockHash: hash, newestBlock: countOf(newest, url) }
}

async function callRpc(
  url: string,
  so: {
    readonly fetch: Fetch
    readonly timeoutMs: number
    readonly method: string
    readonly params: readonly unknown[]
  },
): Promise<Json | undefined> {
  const { fetch, timeoutMs, method, params } = so
  let bytes: Uint8Array | null
  try {
    const signal = AbortSignal.timeout(timeoutMs)
    const body = JSON.stringify({ jsonrpc: '2.0', id: 1, method, params })
    const headers = { 'content-type': 'application/json' }
    const read = async () => {
      const init: RequestInit = { method: 'POST', headers, body, redirect: 'error', signal }
      return await readAtMost(await fetch(url, init), RPC_BYTES_MAX)
    }
    bytes = await readTwice(read, { signal })
    const json = bytes === null ? null : parseExactJson(bytes)
    const result = isJsonObject(json) ? memberOf(json, 'result') : undefined
    if (result !== undefined) return result
  } catch (cause) {
    throw new AffidavitError('unreachable', `the chain's endpoint: ${reasonOf(cause)}`, { cause })
  }
  throw badChain(url)
}

function countOf(value: Json | undefined, url: string): number {
  if (typeof value === 'string' && /^0x[0-9a-f]{1,13}$/.test(value)) return Number(value)
  throw badChain(url)
}

function badChain(url: string): AffidavitError {
  return new AffidavitError('unreachable', `expected a chain's answers from ${new URL(url).origin}`)
}
