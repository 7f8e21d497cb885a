import { randomUUID } from 'node:crypto'
import { Wallet } from 'ethers'
import pg from 'pg'
import { createRpc } from '#client/rpc.ts'
import { createAnchorBlocksStore } from '#src/chain/anchor-blocks-store.ts'
import { createAnchorsStore } from '#src/chain/anchors-store.ts'
import { createBlockProofs } from '#src/chain/block-proofs.ts'
import { createBroadcaster } from '#src/chain/broadcaster.ts'
import { countTransactions } from '#src/chain/chain-reads.ts'
import { fetchBlock } from '#src/chain/read-block.ts'
import { createReanchorer, type Reanchorer } from '#src/chain/reanchorer.ts'
import { createReanchorsStore } from '#src/chain/reanchors-store.ts'
import { createRelayerFollowers, type RelayerFollowers } from '#src/chain/relayer-followers.ts'
import { RelayerNonces } from '#src/chain/relayer-nonces.ts'
import { createRelayersStore, type RelayersStore } from '#src/chain/relayers-store.ts'
import { relayerAddress, signAnchorTransaction } from '#src/chain/sign-anchor.ts'
import { type Database, openDatabase } from '#src/storage/database.ts'
import { ALWAYS_OURS } from '#src/verified/commits/commit-turns.ts'
import { createCommitsStore } from '#src/verified/commits/commits-store.ts'
import { type Committer, createCommitter } from '#src/verified/commits/committer.ts'
import { createLogsStore, type LogsStore } from '#src/verified/logs/logs-store.ts'
import { createEvidence } from '#src/verified/records/evidence.ts'
import {
  type AnsweredRecord,
  createRecordsStore,
  type StoredRecord,
} from '#src/verified/records/records-store.ts'
import { ANCHORED_AT_ONCE } from '../src/verified/commits/run-committer.ts'
import { recordLog, startTestChain, TEST_FEES, type TestChain } from './chain.ts'
import { type ChainProxy, startChainProxy } from './chain-proxy.ts'
import { createScriptedLog, type ScriptedLog } from './scripted-log.ts'
import { createTestDatabase } from './test-database.ts'
import { until } from './until.ts'

/**
 * The part of a gateway that handles anchors, with real parts: database, chain, committer,
 * followers of relayers, reanchorer.
 */
type AnchoringGateway = {
  readonly relayer: string
  readonly database: Database
  /** The enclave's log that it follows; a new one by default. */
  readonly log: ScriptedLog
  readonly committer: Committer
  readonly followers: RelayerFollowers
  readonly reanchorer: Reanchorer
  readonly relayers: RelayersStore
  readonly logs: LogsStore
  readonly logLines: ReturnType<typeof recordLog>['lines']
  /** Its proxy to the chain. */
  readonly proxy: ChainProxy
  /** Seals a completion, and gives its record once it is committed. */
  complete(signal?: AbortSignal): Promise<AnsweredRecord>
  read(hash: string): Promise<StoredRecord>
  /** The evidence of the record with this hash. */
  bundle(hash: string): Promise<Readonly<Record<string, unknown>>>
  stop(): Promise<void>
}

export type RelayerStage = {
  readonly chain: TestChain
  /** An empty database's URL. */
  createDatabase(): Promise<string>
  /** A copy of a database that has no connections, as a dump and its restore give. */
  copyDatabase(url: string): Promise<string>
  /** A key of an account with ether. */
  fundRelayer(): Promise<string>
  start(options: {
    readonly databaseUrl: string
    readonly relayerKey: string
    readonly log?: ScriptedLog
    /** Only signs and stores; no anchor is brought onto the chain. */
    readonly isSilent?: boolean
    /** Default: the chain's count. */
    readonly countTransactions?: () => Promise<number>
    readonly prepareProxy?: (proxy: ChainProxy) => void
  }): Promise<AnchoringGateway>
  /** Whether the chain has the transaction in a block, and it succeeded. */
  isMined(txHash: string): Promise<boolean>
  untilMined(txHash: string): Promise<void>
  dispose(): Promise<void>
}

const FAST = {
  pollIntervalMs: 20,
  heartbeatMs: 100,
  backoff: { minMs: 10, maxMs: 50 },
  rebroadcastMs: 500,
  takenAfterMs: 300,
}

/** Starts a chain, for any number of gateways that use it and databases of the run's server. */
export async function startRelayerStage(): Promise<RelayerStage> {
  const chain = await startTestChain()
  const running = new Set<AnchoringGateway>()

  async function isMined(txHash: string): Promise<boolean> {
    const receipt = (await chain.rpc.call('eth_getTransactionReceipt', [txHash])) as {
      status: string
    } | null
    return receipt?.status === '0x1'
  }

  return {
    chain,
    createDatabase: createTestDatabase,
    copyDatabase,
    async fundRelayer() {
      const key = Wallet.createRandom().privateKey
      await chain.rpc.call('anvil_setBalance', [relayerAddress(key), '0xde0b6b3a7640000'])
      return key
    },
    async start(options) {
      const gateway = await startGateway(chain, options)
      running.add(gateway)
      return {
        ...gateway,
        stop: async () => {
          running.delete(gateway)
          await gateway.stop()
        },
      }
    },
    isMined,
    untilMined: (txHash) => until(`${txHash} is mined`, () => isMined(txHash), 30_000),
    async dispose() {
      await Promise.all([...running].map((gateway) => gateway.stop()))
      await chain.dispose()
    },
  }
}

async function startGateway(
  chain: TestChain,
  options: Parameters<RelayerStage['start']>[0],
): Promise<AnchoringGateway> {
  const { relayerKey, isSilent = false } = options
  const relayer = relayerAddress(relayerKey)
  const { chainId, contract } = chain
  const domain = { chainId, contract }
  const proxy = await startChainProxy(chain.rpcUrl)
  options.prepareProxy?.(proxy)
  const rpc = createRpc({ url: proxy.url, timeoutMs: 1_000 })
  const database = await openDatabase({ url: options.databaseUrl })
  const { log: logger, lines } = recordLog()
  const log = options.log ?? (await createScriptedLog(domain))
  const [commits, records, anchors] = [
    createCommitsStore(database),
    createRecordsStore(database, chainId),
    createAnchorsStore(database),
  ]
  const count =
    options.countTransactions ??
    ((signal?: AbortSignal) => countTransactions(rpc, { address: relayer, chainId }, signal))
  const counted = { address: relayer, countTransactions: count }
  const nonces = new RelayerNonces({ commits, relayer: counted, log: logger })
  const relayers = createRelayersStore(database)
  const followers = createRelayerFollowers({
    relayer,
    chainId,
    store: relayers,
    holder: randomUUID(),
    log: logger,
    intervalMs: 100,
    follow: (address) =>
      createBroadcaster({
        rpc,
        anchors,
        relayer: address,
        chainId,
        contract,
        confirmations: 1,
        log: logger,
        ...FAST,
        ...(address === relayer ? { onCount: nonces.recordCount } : {}),
      }),
  })
  const reanchorer = createReanchorer({
    reanchors: createReanchorsStore(database),
    nonces,
    chainId,
    log: logger,
    now: Date.now,
    sign: (nonce, taken) =>
      signAnchorTransaction({ relayerKey, chainId, nonce, fees: TEST_FEES, ...taken }),
    onReanchor: followers.notify,
    intervalMs: 100,
  })
  const committer = createCommitter({
    enclave: log.enclave,
    commits,
    records,
    domain,
    nonces,
    log: logger,
    now: Date.now,
    signAnchor: (nonce, head) =>
      signAnchorTransaction({ relayerKey, chainId, contract, nonce, head, fees: TEST_FEES }),
    onCommit: followers.notify,
    turns: ALWAYS_OURS,
    anchors: ANCHORED_AT_ONCE,
  })
  const blocks = createAnchorBlocksStore(database)
  const proofs = createBlockProofs({
    blocks,
    fetchBlock: (hash, signal) => fetchBlock(rpc, hash, signal),
  })
  const evidence = createEvidence({
    records,
    anchors: blocks,
    proofs,
    providers: { findFor: async () => null },
    chainId,
    isOpen: true,
    source: null,
    log: logger,
  })
  if (!isSilent) for (const part of [followers, reanchorer]) part.start()
  committer.start()
  return {
    relayer,
    database,
    log,
    committer,
    followers,
    reanchorer,
    relayers,
    logLines: lines,
    proxy,
    logs: createLogsStore(database),
    async complete(signal = AbortSignal.timeout(30_000)) {
      const { notary, index } = log.seal({ content: randomUUID() })
      return committer.waitFor(notary, index, signal)
    },
    async read(hash) {
      const record = await records.findByHash(hash, { accountId: null })
      if (record === null) throw new Error(`expected the record ${hash}`)
      return record
    },
    async bundle(hash) {
      const text = await evidence.find(hash, { accountId: randomUUID(), seesAll: true })
      if (text === null) throw new Error(`expected the record ${hash}`)
      return JSON.parse(text)
    },
    async stop() {
      await committer.stop()
      await reanchorer.stop()
      await followers.stop()
      await proofs.stop()
      await rpc.close()
      await proxy.stop()
      await database.close()
    },
  }
}

async function copyDatabase(url: string): Promise<string> {
  const copy = new URL(url)
  copy.pathname = `/copy_${randomUUID().replaceAll('-', '')}`
  const client = new pg.Client({ connectionString: new URL('/postgres', url).href })
  await client.connect()
  try {
    await client.query(
      `create database ${copy.pathname.slice(1)} template ${new URL(url).pathname.slice(1)}`,
    )
  } finally {
    await client.end()
  }
  return copy.href
}
