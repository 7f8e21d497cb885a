import { setTimeout as sleep } from 'node:timers/promises'
import {
  compareExchange,
  completeRecord,
  type KeptExchange,
} from '#attestation/compare-exchange.ts'
import { parseExactJson } from '#attestation/json/parse-strict.ts'
import { isJsonObject, type Json, memberOf } from '#attestation/json/value.ts'
import { type RecordReport, verifyRecord } from '#attestation/verify-record.ts'
import { splitEvents, verifyStream } from '#attestation/verify-stream.ts'
import type { ProvenCompletion } from './callers.ts'

type Place = {
  readonly origin: string
  readonly key: string
  readonly rpcUrl: string
  readonly contract: string
}
type HistoryRecord = {
  readonly id: string
  readonly hash: string
  readonly tx_hash: string
  readonly public_key: string
  readonly receipt: { readonly index: number }
}

const ANCHOR_TIMEOUT_MS = 60_000
/** On a machine that is busy with other work, the proxy may take slow gateways for dead. */
const UNAVAILABLE_MAX_MS = 60_000

/**
 * Gives everything that is wrong with the service after a run. A proven completion is wrong if it
 * is missing from the history or is there twice, if it does not verify or has another transaction,
 * or if the chain does not know its anchor as successful. An answer is wrong if it does not verify
 * as its caller kept it.
 */
export async function auditRun(
  place: Place,
  proven: readonly ProvenCompletion[],
): Promise<readonly string[]> {
  const history = await fetchHistory(place)
  const leaves = Map.groupBy(history, (record) => `${record.public_key} ${record.receipt.index}`)
  const doubled = [...leaves]
    .filter(([, records]) => records.length > 1)
    .map(([leaf]) => `twice in history: ${leaf}`)
  const faults: string[] = [...doubled]
  await forEach(proven, async (completion) => {
    const [record] = leaves.get(`${completion.publicKey} ${completion.index}`) ?? []
    if (!record) faults.push(`lost: ${completion.hash} (leaf ${completion.index})`)
    else if (record.hash !== completion.hash)
      faults.push(`other hash at leaf ${completion.index}: ${record.hash}`)
    else if (record.tx_hash !== completion.txHash)
      faults.push(`other transaction: ${completion.hash}`)
    else faults.push(...verifyKept(completion), ...(await verifyFetched(place, completion)))
  })
  const anchors = new Set(history.map((record) => record.tx_hash))
  await forEach(anchors, async (txHash) => {
    faults.push(...(await checkAnchor(place, txHash)))
  })
  return faults
}

const AT_ONCE = 8

async function forEach<Item>(
  items: Iterable<Item>,
  act: (item: Item) => Promise<void>,
): Promise<void> {
  const left = items[Symbol.iterator]()
  const work = async () => {
    for (let next = left.next(); next.done !== true; next = left.next()) await act(next.value)
  }
  await Promise.all(Array.from({ length: AT_ONCE }, work))
}

async function verifyFetched(
  place: Place,
  completion: ProvenCompletion,
): Promise<readonly string[]> {
  const { hash } = completion
  const response = await get(place, `/v1/verified/chat/completions/${hash}`)
  if (response.status !== 200) return [`not found by hash: ${hash} (${response.status})`]
  const record = parseExactJson(new Uint8Array(await response.arrayBuffer()))
  const faults = faultsOf(hash, verifyRecord(record))
  return completion.isEncrypted ? [...faults, ...verifyCompleted(record, completion)] : faults
}

/**
 * Verifies the record of an encrypted call, which has only hashes, together with what its caller
 * kept.
 */
function verifyCompleted(record: Json, completion: ProvenCompletion): readonly string[] {
  const { hash, request, answer, isStream } = completion
  if (!isJsonObject(record) || memberOf(record, 'redacted') !== true)
    return [`not redacted: ${hash}`]
  const chunks = isStream ? chunksOf(answer) : []
  const kept: KeptExchange = {
    request: parseExactJson(Buffer.from(request)),
    answer: isStream
      ? { kind: 'stream', chunks }
      : { kind: 'whole', answer: parseExactJson(Buffer.from(answer)) },
  }
  const others = compareExchange(record, kept).filter(({ outcome }) => outcome !== 'passed')
  const report = verifyRecord(completeRecord(record, kept))
  return [
    ...others.map(({ name, detail }) => `not what was kept: ${hash}: ${name}: ${detail}`),
    ...faultsOf(hash, report),
  ]
}

function chunksOf(answer: string): readonly Json[] {
  return splitEvents(Buffer.from(answer)).map((data) => parseExactJson(Buffer.from(data)))
}

function verifyKept({
  hash,
  request: body,
  answer,
  isStream,
}: ProvenCompletion): readonly string[] {
  const request = parseExactJson(Buffer.from(body))
  if (!isStream)
    return faultsOf(hash, verifyRecord(parseExactJson(Buffer.from(answer)), { request }))
  const report = verifyStream(chunksOf(answer), { request })
  const isBound = report.checks.some(
    ({ name, outcome }) => name === 'stream hash' && outcome === 'passed',
  )
  return isBound
    ? faultsOf(hash, report)
    : [`stream hash not checked: ${hash}`, ...faultsOf(hash, report)]
}

function faultsOf(hash: string, report: RecordReport): readonly string[] {
  return report.checks
    .filter(({ outcome }) => outcome === 'failed')
    .map(({ name, detail }) => `does not verify: ${hash}: ${name}: ${detail}`)
}

async function fetchHistory(place: Place): Promise<readonly HistoryRecord[]> {
  const records: HistoryRecord[] = []
  let cursor: string | null = null
  do {
    const query: string = cursor === null ? '' : `&cursor=${cursor}`
    const response = await get(place, `/v1/verified/chat/completions?limit=500${query}`)
    if (response.status !== 200)
      throw new Error(`history: ${response.status} ${await response.text()}`)
    const page = (await response.json()) as { completions: HistoryRecord[]; cursor: string | null }
    records.push(...page.completions)
    cursor = page.cursor
  } while (cursor !== null)
  return records
}

/** Asks again while the service answers 503, which does not show what the service holds. */
async function get({ origin, key }: Place, path: string): Promise<Response> {
  const deadline = performance.now() + UNAVAILABLE_MAX_MS
  for (;;) {
    const response = await fetch(`${origin}${path}`, {
      headers: { authorization: `Bearer ${key}` },
      signal: AbortSignal.timeout(20_000),
    })
    if (response.status !== 503 || performance.now() > deadline) return response
    await response.arrayBuffer()
    await sleep(500)
  }
}

async function checkAnchor(place: Place, txHash: string): Promise<readonly string[]> {
  const deadline = performance.now() + ANCHOR_TIMEOUT_MS
  while (performance.now() < deadline) {
    const receipt = await fetchReceipt(place.rpcUrl, txHash)
    if (receipt?.status === '0x1')
      return receipt.to.toLowerCase() === place.contract.toLowerCase()
        ? []
        : [`anchor to another contract: ${txHash}`]
    if (receipt) return [`anchor failed on chain: ${txHash}`]
    await sleep(100)
  }
  return [`not anchored: ${txHash}`]
}

async function fetchReceipt(
  rpcUrl: string,
  txHash: string,
): Promise<{ status: string; to: string } | null> {
  const response = await fetch(rpcUrl, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify({
      jsonrpc: '2.0',
      id: 1,
      method: 'eth_getTransactionReceipt',
      params: [txHash],
    }),
  })
  const { result } = (await response.json()) as { result: { status: string; to: string } | null }
  return result
}
