import { randomBytes, randomUUID } from 'node:crypto'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll } from 'vitest'
import { type ApiKeys, createApiKeys } from '#src/accounts/api-keys.ts'
import { createKeysStore, type KeysStore } from '#src/accounts/keys-store.ts'
import { type Tiers, UNLIMITED_TIERS } from '#src/accounts/limits/tiers.ts'
import type { App } from '#src/api/app.ts'
import { createAnchorBlocksStore } from '#src/chain/anchor-blocks-store.ts'
import type { Anchoring } from '#src/chain/anchoring.ts'
import { relayerWith } from '#src/chain/open-chain.ts'
import { RelayerNonces } from '#src/chain/relayer-nonces.ts'
import { signAnchorTransaction } from '#src/chain/sign-anchor.ts'
import { compose } from '#src/compose.ts'
import { type GatewayConfig, readGatewayConfig } from '#src/config.ts'
import type { Gateway, OwnParts } from '#src/gateway.ts'
import type { ServingNodes } from '#src/nodes/hub/open-nodes.ts'
import {
  createInferencesStore,
  type InferencesStore,
} from '#src/nodes/registry/inferences-store.ts'
import {
  type BegunConnection,
  type ConnectionOfNode,
  createNodesStore,
  type NodesStore,
} from '#src/nodes/registry/nodes-store.ts'
import { createLogger, type Logger } from '#src/observability/logger.ts'
import type { ContentCipher } from '#src/storage/content-cipher.ts'
import { type Database, openDatabase } from '#src/storage/database.ts'
import { createCommitsStore } from '#src/verified/commits/commits-store.ts'
import type { Committer } from '#src/verified/commits/committer.ts'
import type { PostgresServer } from './postgres.ts'
import { createScriptedDispatcher } from './scripted-dispatcher.ts'
import { SCRIPTED_DOMAIN, type ScriptedEnclave, startScriptedEnclave } from './scripted-enclave.ts'
import { createTestDatabase } from './test-database.ts'

/**
 * A gateway of real parts (HTTP server, database, committer, keys) in front of a scripted enclave.
 */
export type TestGateway = {
  readonly app: App
  /** As in Gateway. */
  readonly routes: Gateway['routes']
  readonly url: string
  /** Connection string of its database. */
  readonly databaseUrl: string
  readonly port: number
  /** Null without `settings.metrics`. */
  readonly metricsUrl: string | null
  readonly enclave: ScriptedEnclave
  readonly committer: Pick<Committer, 'waitFor' | 'status' | 'stop'>
  readonly keys: ApiKeys
  readonly accounts: Pick<KeysStore, 'setTier' | 'setDisabled' | 'deleteAccount'>
  readonly nodesStore: NodesStore
  /** Stores a connection of a node that this gateway holds, and gives the connection. */
  connectNode(
    nodeId: string,
    connection?: Partial<BegunConnection>,
  ): Promise<ConnectionOfNode & { readonly isRecorded: boolean }>
  readonly inferences: InferencesStore
  readonly nodes: ServingNodes
  /** A valid key, and its account. */
  readonly key: string
  readonly accountId: string
  /** Every log line. */
  readonly logLines: readonly string[]
  /** Ends the connections to the database, without a way back. */
  breakDatabase(): Promise<void>
  drain(skip: AbortSignal): Promise<void>
  stop(): Promise<void>
}

/** Time to start or stop a gateway on a busy machine, milliseconds. */
export const GATEWAY_HOOK_TIMEOUT_MS = 60_000

/** A gateway for the tests of the file that calls this at its top level: it stops at its end. */
export async function useGateway(
  options?: Parameters<typeof startGateway>[0],
): Promise<TestGateway> {
  const gateway = await startGateway(options)
  afterAll(() => gateway.stop(), GATEWAY_HOOK_TIMEOUT_MS)
  return gateway
}

/**
 * Starts a gateway on an ephemeral loopback port. Anchors are signed and stored; there is no chain.
 */
export async function startGateway(
  options: Pick<
    OwnParts,
    'nodeLimits' | 'embeddings' | 'images' | 'search' | 'observers' | 'bodyRate' | 'attested'
  > & {
    readonly settings?: Partial<GatewayConfig>
    readonly credentials?: ReadonlyMap<string, string>
    /** Default: no limits. */
    readonly tiers?: Tiers
    /** Encrypts stored content. Default: it is stored in the clear. */
    readonly content?: ContentCipher
    /** Where the gateway gets its database. Default: the run's server. */
    readonly postgres?: Pick<PostgresServer, 'createDatabase'>
    /** A key of any form that is accepted without the database. Default: none. */
    readonly fixedKey?: string
    /**
     * Serves plain calls; null: real nodes, over sockets. Default: nodes without sockets that
     * answer hello.
     */
    readonly nodes?: ServingNodes | null
    /** Socket of an enclave that signs for SCRIPTED_DOMAIN. Default: the scripted one's. */
    readonly enclaveSocket?: string
    /** Figures of blocks with anchors. Default: all can be read. */
    readonly unreadableBlocks?: Anchoring['unreadableBlocks']
    /** Default: there is no block, and each request for one waits. */
    readonly fetchRecentBlock?: Anchoring['fetchRecentBlock']
  } = {},
): Promise<TestGateway> {
  const enclave = await startScriptedEnclave()
  const url = await (options.postgres?.createDatabase() ?? createTestDatabase())
  const database = await openDatabase({ url }, undefined, options.content)
  const logLines: string[] = []
  const log = createLogger({
    level: 'debug',
    destination: { write: (line) => void logLines.push(line) },
  })
  const { fixedKey, nodes = createScriptedDispatcher(), tiers = UNLIMITED_TIERS } = options
  const config: GatewayConfig = {
    ...readGatewayConfig({
      NODE_ENV: 'test',
      PORT: '0',
      DATA_DIR: join(tmpdir(), `affidavit-${randomUUID()}`),
      ENCLAVE_URL: `unix:${options.enclaveSocket ?? enclave.socketPath}`,
      LOG_LEVEL: 'debug',
      SHUTDOWN_GRACE_MS: '500',
      // The providers in the tests' tables are on the internet.
      PROVIDER_MODELS_ASK: 'false',
    }),
    credentials: options.credentials ?? new Map(),
    ...options.settings,
  }
  const { nodeLimits, embeddings, images, search, observers, bodyRate, attested } = options
  const { unreadableBlocks, fetchRecentBlock } = options
  const keys = createApiKeys({
    keys: createKeysStore(database),
    now: Date.now,
    random: randomBytes,
    fixedKey: fixedKey === undefined ? null : { text: fixedKey, accountId: randomUUID() },
  })
  const gateway = await compose(config, log, {
    nodeLimits,
    bodyRate,
    embeddings,
    images,
    search,
    observers,
    attested,
    home: null,
    database,
    anchoring: {
      ...anchorNowhere(database, log),
      ...(unreadableBlocks === undefined ? {} : { unreadableBlocks }),
      ...(fetchRecentBlock === undefined ? {} : { fetchRecentBlock }),
    },
    enclaves: {
      check: async () => [],
      isKnownLog: async () => false,
      register: async () => undefined,
      settleMs: 0,
    },
    tiers,
    keys,
    ...(nodes === null ? {} : { nodes }),
  })
  const { app, enclaves, commits, lease } = gateway
  const nodesStore = createNodesStore(database)
  const { text: key } = await keys.create({ accountName: 'tests', name: 'first' })
  const { id: accountId } = await keys.openAccount('tests')
  return {
    app,
    routes: gateway.routes,
    url: gateway.facts.url,
    databaseUrl: url,
    port: Number(new URL(gateway.facts.url).port),
    metricsUrl: gateway.facts.metricsUrl,
    enclave,
    committer: { ...commits, stop: () => enclaves.stopFollowing() },
    keys,
    accounts: createKeysStore(database),
    nodesStore,
    async connectNode(nodeId, options) {
      const connection = { nodeId, connectionId: randomUUID() }
      const isRecorded = await nodesStore.markConnected({
        ...connection,
        processId: lease.id(),
        models: ['m'],
        state: 'RUNNING',
        at: Math.floor(Date.now() / 1000),
        ...options,
      })
      return { ...connection, isRecorded }
    },
    inferences: createInferencesStore(database),
    nodes: gateway.nodes,
    key,
    accountId,
    logLines,
    breakDatabase: () => database.close(),
    drain: gateway.drain,
    stop: async () => {
      // After a break of the database, the end cannot be stored.
      await gateway.stop().catch(() => undefined)
      await enclave.stop()
    },
  }
}

/** A relayer that signs for SCRIPTED_DOMAIN; its anchors are not sent. */
function anchorNowhere(database: Database, log: Logger): Anchoring {
  const { key: relayerKey, address } = relayerWith(`0x${randomBytes(32).toString('hex')}`)
  const relayer = { address, countTransactions: async () => 0 }
  const fees = { maxFeePerGasWei: 10n ** 11n, maxPriorityFeePerGasWei: 10n ** 9n }
  return {
    domain: SCRIPTED_DOMAIN,
    relayer,
    nonces: new RelayerNonces({ commits: createCommitsStore(database), relayer, log }),
    sign: (nonce, head) =>
      signAnchorTransaction({ ...SCRIPTED_DOMAIN, relayerKey, nonce, head, fees }),
    notify: () => undefined,
    status: () => ({
      phase: 'idle',
      fault: null,
      isChainFailing: false,
      blockNumber: null,
      pendingCount: 0,
      revertedCount: 0,
      takenCount: 0,
    }),
    fetchRecentBlock: (signal) =>
      new Promise((_, reject) => signal?.addEventListener('abort', () => reject(signal.reason))),
    evidence: {
      anchors: createAnchorBlocksStore(database),
      proofs: { prove: async () => null },
      chainId: SCRIPTED_DOMAIN.chainId,
    },
    unreadableBlocks: () => ({ count: 0, reason: null }),
    listRelayers: async () => [],
    figures: {
      lag: async () => ({ unconfirmed: 0, oldestAt: null }),
      reanchored: () => 0,
      balances: async () => new Map(),
    },
  }
}
