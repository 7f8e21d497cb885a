import { setImmediate as yieldOnce } from 'node:timers/promises'
import { afterAll, afterEach, beforeEach, expect, it } from 'vitest'
import { encodeBase64, encodeHex } from '#attestation/bytes.ts'
import { verifyHeadAttestation } from '#attestation/evidence/verify-head-attestation.ts'
import { appendLeaves, emptyEdge, rootOf } from '#attestation/merkle/edge.ts'
import { hashLeaf } from '#attestation/merkle/hash.ts'
import { createAttestationVerifier } from '#attestation/nitro/verify-attestation.ts'
import { createRpc } from '#client/rpc.ts'
import { createRecentBlocks, fetchBlockHashes } from '#src/chain/chain-reads.ts'
import {
  createHeadAttestations,
  type HeadAttestations,
  type HeadAttestationsOptions,
} from '#src/verified/logs/head-attestations.ts'
import {
  createHeadAttestationsStore,
  type StoredHeadAttestation,
} from '#src/verified/logs/head-attestations-store.ts'
import { recordLog, startTestChain } from '../../../support/chain.ts'
import { startChainProxy } from '../../../support/chain-proxy.ts'
import { useDatabase } from '../../../support/databases.ts'
import { standardChain } from '../../../support/nitro-builder/document-builder.ts'
import { createScriptedLog, type ScriptedLog } from '../../../support/scripted-log.ts'
import { until } from '../../../support/until.ts'
import { type RunningCommitter, runCommitter } from '../commits/run-committer.ts'

const CONFIRMATIONS = 3
const INTERVAL_MS = 20
const attestations = createAttestationVerifier()

const chain = await startTestChain()
await chain.rpc.call('anvil_mine', ['0x10'])
const proxy = await startChainProxy(chain.rpcUrl)
const rpc = createRpc({ url: proxy.url })
afterAll(async () => {
  await rpc.close()
  await proxy.stop()
  await chain.dispose()
})
const fetchBlock = createRecentBlocks({
  rpc,
  contract: chain.contract,
  confirmations: CONFIRMATIONS,
})
const database = await useDatabase()
const store = createHeadAttestationsStore(database)

let log: ScriptedLog
let running: RunningCommitter
let attester: HeadAttestations
let lines: ReturnType<typeof recordLog>['lines']

beforeEach(async () => {
  log = await createScriptedLog()
  running = runCommitter(database, log)
})
afterEach(async () => {
  proxy.behave(() => ({ kind: 'pass' }))
  running.script.beforeCommit = () => {}
  await attester.stop()
  await running.committer.stop()
})

function start(options: Partial<HeadAttestationsOptions> = {}): HeadAttestations {
  const recorded = recordLog()
  lines = recorded.lines
  attester = createHeadAttestations({
    enclave: log.enclave,
    committer: running.committer,
    store,
    fetchBlock,
    intervalMs: INTERVAL_MS,
    log: recorded.log,
    now: () => performance.now(),
    ...options,
  })
  attester.start()
  return attester
}

async function kept(notary = log.notary()): Promise<readonly StoredHeadAttestation[]> {
  const found = await store.findRoot({ notary, size: 0 })
  if (found === null) return []
  return store.listHeadAttestations({ logId: found.logId, afterSize: null, throughSize: null })
}

const sizesKept = async () => (await kept()).map(({ size }) => size)
/** True once a commit is held back. */
let isHeld = false
/** Holds commits back until the function is called that it gives. */
function holdCommits(): () => void {
  const held = Promise.withResolvers<void>()
  isHeld = false
  running.script.beforeCommit = () => {
    isHeld = true
    return held.promise
  }
  return () => held.resolve()
}

/** Resolves when the enclave has given an attestation. */
function untilAttested(): Promise<void> {
  const { promise, resolve } = Promise.withResolvers<void>()
  log.script.afterAttest = (reply) => {
    resolve()
    return reply
  }
  return promise
}

/** The verdict of an outsider with the documents' root and an endpoint of their own. */
async function verify(stored: StoredHeadAttestation) {
  const { notary, boot_configuration: boot } = await log.enclave.identity()
  const hashes = await fetchBlockHashes(chain.rpc, [stored.blockNumber])
  const json = {
    size: stored.size,
    root: encodeHex(stored.root),
    block_number: stored.blockNumber,
    block_hash: `0x${encodeHex(stored.blockHash)}`,
    created_at: stored.createdAt,
    document: encodeBase64(stored.document),
  }
  return verifyHeadAttestation(
    json,
    { notary, bootConfiguration: JSON.parse(JSON.stringify(boot)) },
    { roots: [standardChain.rootSha256], confirmationsMin: CONFIRMATIONS + 1 },
    {
      attestations,
      chain: {
        chainId: chain.chainId,
        blockHash: hashes.get(stored.blockNumber) ?? null,
        newestBlock: Number(await chain.rpc.call('eth_blockNumber', [])),
      },
    },
  )
}

it('head attestations are of the log at once, also of an empty one, over a block with enough confirmations', async () => {
  start({ intervalMs: 60_000 })
  await until('it is kept', () => attester.status().kept === 1)
  const [only, ...others] = await kept()
  expect([only?.size, others]).toEqual([0, []])
  const newest = Number(await chain.rpc.call('eth_blockNumber', []))
  expect(only?.blockNumber).toBe(newest - CONFIRMATIONS)
  if (only === undefined) throw new Error('none was kept')
  expect(await verify(only)).toMatchObject({
    verdict: 'incomplete',
    open: ['measurements', 'expected configuration'],
    facts: { size: 0, notBefore: { number: newest - CONFIRMATIONS } },
  })
})

it('head attestations come again at every interval; of each size the first and the newest are kept', async () => {
  log.seal()
  start()
  await until('five are kept', () => attester.status().kept >= 5)
  log.seal()
  log.seal()
  const before = attester.status().kept
  await until('four more are kept', () => attester.status().kept >= before + 4)
  await attester.stop()
  expect(await sizesKept()).toEqual([1, 1, 3, 3])
  for (const stored of await kept()) expect((await verify(stored)).verdict).toBe('incomplete')
})

it('head attestations wait until all their leaves are committed', async () => {
  const release = holdCommits()
  for (let count = 0; count < 3; count++) log.seal()
  const attested = untilAttested()
  start()
  await attested
  await until('its commit waits', () => isHeld)
  expect([await kept(), attester.status()]).toMatchObject([[], { kept: 0, fault: null }])
  release()
  await until('it is kept', async () => (await kept()).length > 0)
  expect(await sizesKept()).toContain(3)
})

it('head attestations are dropped when the enclave is replaced before, and made anew of the next log', async () => {
  const former = log.notary()
  running.script.beforeCommit = () => {
    throw new Error('connect ECONNREFUSED')
  }
  const attested = untilAttested()
  log.seal()
  start()
  await attested
  await log.restart()
  running.script.beforeCommit = () => {}
  log.seal()
  await until('the next log is attested', async () => (await kept()).length > 0)
  expect(await kept(former)).toEqual([])
  expect(await sizesKept()).toContain(1)
  expect(attester.status().dropped).toBe(1)
  expect(lines).toContainEqual(
    expect.objectContaining({
      level: 'warn',
      members: expect.objectContaining({ notary: former, size: 1 }),
    }),
  )
})

it('head attestations that contradict the committed log are reported and never stored', async () => {
  log.seal()
  await running.committer.waitFor(log.notary(), 0, new AbortController().signal)
  log.script.beforeAttest = ({ size }) => ({ size, root: new Uint8Array(32).fill(7) })
  start()
  await until('it is seen', () => attester.status().contradictions >= 2)
  expect(await kept()).toEqual([])
  expect(lines).toContainEqual(
    expect.objectContaining({
      level: 'error',
      members: expect.objectContaining({
        attestedRoot: '07'.repeat(32),
        storedRoot: expect.stringMatching(/^[0-9a-f]{64}$/),
      }),
    }),
  )
  log.script.beforeAttest = (head) => head
  await until('a true one is kept', async () => (await kept()).length > 0)
})

it.each<[string, (reply: { size: number; root: string; document: string }) => object]>([
  ['over another size', (reply) => ({ ...reply, size: reply.size + 1 })],
  ['over another root', (reply) => ({ ...reply, root: '00'.repeat(32) })],
  ['that is none', (reply) => ({ ...reply, document: 'AAAA' })],
])('head attestations with a document %s are refused, and asked for again', async (_, alter) => {
  log.seal()
  log.script.afterAttest = (reply) => ({ ...reply, ...alter(reply) })
  start()
  await until('it is refused', () => attester.status().fault !== null)
  expect(await kept()).toEqual([])
  log.script.afterAttest = (reply) => reply
  await until('a true one is kept', async () => (await kept()).length > 0)
  expect(attester.status()).toMatchObject({ fault: null, contradictions: 0 })
})

it('head attestations over another hash than was sent, an old answer, are refused', async () => {
  const old = await log.enclave.attestHead(`0x${'0d'.repeat(32)}`, new AbortController().signal)
  log.script.afterAttest = () => old
  start()
  await until('it is refused', () => attester.status().fault !== null)
  expect(await kept()).toEqual([])
})

it('head attestations by the enclave that came in between are asked for again', async () => {
  await running.committer.waitFor(log.notary(), log.seal().index, new AbortController().signal)
  const before = await log.enclave.identity()
  await log.restart()
  let asked = 0
  const identity = async () => (asked++ === 0 ? before : log.enclave.identity())
  start({ enclave: { ...log.enclave, identity } })
  await until('it is kept', async () => (await kept()).length > 0)
  expect(await kept(before.notary)).toEqual([])
  expect(lines[0]).toMatchObject({ level: 'warn', members: { err: { name: 'EnclaveReplaced' } } })
})

it('head attestations of a block of another chain are not asked for', async () => {
  let asks = 0
  log.script.beforeAttest = (head) => {
    asks++
    return head
  }
  start({ fetchBlock: async () => ({ chainId: 1, number: 1, hash: `0x${'01'.repeat(32)}` }) })
  await until('it fails', () => attester.status().fault !== null)
  expect([attester.status().fault?.message, asks]).toEqual([
    'expected a block of chain 31337, got a block of chain 1',
    0,
  ])
})

it.each<[string, () => void, () => void]>([
  ['an enclave that is down', () => log.setDown(true), () => log.setDown(false)],
  [
    'a chain that is out of reach',
    () => proxy.behave(() => ({ kind: 'answer', status: 503, body: '' })),
    () => proxy.behave(() => ({ kind: 'pass' })),
  ],
])(
  'head attestations that fail for %s go on when it is back, and say so once',
  async (_, begin, end) => {
    begin()
    let asked = 0
    const count = <Value>(value: Promise<Value>) => {
      asked++
      return value
    }
    start({
      enclave: { ...log.enclave, identity: () => count(log.enclave.identity()) },
      fetchBlock: (signal) => count(fetchBlock(signal)),
    })
    await until('it fails', () => attester.status().fault !== null && asked > 3)
    expect(lines.map(({ level, message }) => [level, message])).toEqual([
      ['warn', 'log not attested, trying again'],
    ])
    end()
    await until('it is kept', () => attester.status().kept > 0)
    expect(attester.status().fault).toBeNull()
  },
)

it('a stop of head attestations breaks off one that waits for its leaves, and says nothing of it', async () => {
  const release = holdCommits()
  const attested = untilAttested()
  log.seal()
  start()
  await attested
  const begun = performance.now()
  await attester.stop()
  expect(performance.now() - begun).toBeLessThan(5_000)
  expect(lines).toEqual([])
  release()
})

it('head attestations of a busy log have exactly the root that the committed log has at their size', async () => {
  start({ intervalMs: 1 })
  for (let count = 0; count < 60; count++) {
    log.seal()
    await yieldOnce()
    // However busy the machine: of each round one is attested, while the next ones are sealed.
    if (count % 12 === 0)
      await until('one is kept', async () => (await sizesKept()).some((size) => size > count))
  }
  const notary = log.notary()
  await running.committer.waitFor(notary, 59, new AbortController().signal)
  await until('the last is attested', async () => (await sizesKept()).includes(60))
  await attester.stop()
  const receipts = await Promise.all(
    Array.from(
      { length: 60 },
      async (_, index) => (await running.records.findByIndex(notary, index))?.receipt,
    ),
  )
  const leaves = receipts.map((receipt) => hashLeaf(Buffer.from(receipt ?? '')))
  const all = await kept()
  expect(new Set(all.map(({ size }) => size)).size).toBeGreaterThan(3)
  for (const stored of all) {
    const { edge } = appendLeaves(emptyEdge, leaves.slice(0, stored.size))
    expect(encodeHex(stored.root)).toBe(encodeHex(rootOf(edge)))
    expect((await verify(stored)).verdict).toBe('incomplete')
  }
  expect(attester.status()).toMatchObject({ dropped: 0, contradictions: 0, fault: null })
})
