import { randomBytes, randomUUID } from 'node:crypto'
import { computeAddress } from 'ethers'
import { type Accounts, createAccounts } from '../../src/accounts/accounts.ts'
import { type ApiKeys, createApiKeys } from '../../src/accounts/api-keys.ts'
import { createKeysStore } from '../../src/accounts/keys-store.ts'
import { type Tiers, UNLIMITED_TIERS } from '../../src/accounts/limits/tiers.ts'
import type { App } from '../../src/api/app.ts'
import { createAnchorBlocksStore } from '../../src/chain/anchor-blocks-store.ts'
import { signAnchorTransaction } from '../../src/chain/anchor-transaction.ts'
import { createRelayerNonces } from '../../src/chain/relayer-nonces.ts'
import { createAttestationCheck } from '../../src/enclaves/enclave-check.ts'
import type { EnclaveEndpoint } from '../../src/enclaves/enclave-endpoint.ts'
import { EnclavePool } from '../../src/enclaves/enclave-pool.ts'
import { createInferencesStore, type InferencesStore } from '../../src/nodes/inferences-store.ts'
import { createNodesStore, type NodesStore } from '../../src/nodes/nodes-store.ts'
import type { CallObserver } from '../../src/observability/call-scope.ts'
import { createLogger, type Logger } from '../../src/observability/logger.ts'
import type { UpstreamServices } from '../../src/start/app-routes.ts'
import { type AppNodes, type AppSettings, createGatewayApp } from '../../src/start/app-routes.ts'
import { openLimits } from '../../src/start/limits.ts'
import { openDatabase } from '../../src/storage/database.ts'
import { createDatabaseCheck } from '../../src/storage/database-check.ts'
import { createBootStatementsStore } from '../../src/verified/boot-statements-store.ts'
import { createCommitsStore } from '../../src/verified/commits-store.ts'
import { type Committer, createCommitter } from '../../src/verified/committer.ts'
import { createEnclaveCommits } from '../../src/verified/enclave-commits.ts'
import { createHeadAttestationsStore } from '../../src/verified/head-attestations-store.ts'
import { createLogsStore } from '../../src/verified/logs-store.ts'
import { createRecordsStore } from '../../src/verified/records-store.ts'
import { NO_UPSTREAM } from './no-upstream.ts'
import type { PostgresServer } from './postgres.ts'
import { createScriptedDispatcher } from './scripted-dispatcher.ts'
import { SCRIPTED_DOMAIN, type ScriptedEnclave, startScriptedEnclave } from './scripted-enclave.ts'
import { createTestDatabase } from './test-database.ts'

/** A gateway of real parts (HTTP server, database, committer, keys) in front of a scripted enclave. */
export type TestGateway = {
  readonly app: App
  readonly url: string
  readonly port: number
  readonly enclave: ScriptedEnclave
  readonly committer: Pick<Committer, 'waitFor' | 'status' | 'stop'>
  readonly keys: ApiKeys
  readonly accounts: Accounts
  readonly nodesStore: NodesStore
  readonly inferences: InferencesStore
  /** A valid key, and the account it is of. */
  readonly key: string
  readonly accountId: string
  /** Every line that was logged. */
  readonly logLines: readonly string[]
  /** Ends the connections to the database, for good. */
  breakDatabase(): Promise<void>
  stop(): Promise<void>
}

/** Time for starting or stopping one, milliseconds, on a busy machine. */
export const GATEWAY_HOOK_TIMEOUT_MS = 60_000

const ENCLAVE_WAIT_MS = 10_000

export const TEST_SETTINGS: AppSettings = {
  isHistoryOpen: true,
  corsOrigins: [],
  keepAliveMs: 15_000,
  bodyBytesMax: 10 * 1024 * 1024,
  providerModels: [],
  shutdownGraceMs: 500,
  logsRequests: true,
}

/** What nodes of a test can be made of. */
export type NodeParts = {
  readonly nodesStore: NodesStore
  readonly inferences: InferencesStore
  readonly keys: ApiKeys
  readonly log: Logger
}

/** Starts a gateway on an ephemeral loopback port. Anchors are signed and stored; no chain is there to take them. */
export async function startGateway(
  options: {
    readonly settings?: Partial<AppSettings>
    readonly observers?: readonly CallObserver[]
    readonly credentials?: ReadonlyMap<string, string>
    /** Default: no limits. */
    readonly tiers?: Tiers
    /** Where the gateway gets a database of its own. Default: the run's server. */
    readonly postgres?: PostgresServer
    /** A key of any form that is taken without the database. Default: none. */
    readonly fixedKey?: string
    /** What serves plain calls. Default: nodes without sockets that say hello. */
    readonly nodes?: (parts: NodeParts) => AppNodes
    /** Services that the operator configured. Default: none of them. */
    readonly upstream?: Partial<UpstreamServices>
    /** Socket of an enclave that signs for SCRIPTED_DOMAIN. Default: the scripted one's. */
    readonly enclaveSocket?: string
  } = {},
): Promise<TestGateway> {
  const enclave = await startScriptedEnclave()
  const url = await (options.postgres?.createDatabase() ?? createTestDatabase())
  const database = await openDatabase({ url })
  const logLines: string[] = []
  const log = createLogger({ level: 'debug', destination: { write: (line) => void logLines.push(line) } })
  const records = createRecordsStore(database)
  const nodesStore = createNodesStore(database)
  const inferences = createInferencesStore(database)
  const relayerKey = `0x${randomBytes(32).toString('hex')}`
  const fees = { maxFeePerGasWei: 10n ** 11n, maxPriorityFeePerGasWei: 10n ** 9n }
  const commitsStore = createCommitsStore(database)
  const commits = createEnclaveCommits(records)
  const follow = (followed: EnclaveEndpoint) => {
    const committer = createCommitter({
      enclave: followed,
      commits: commitsStore,
      records,
      domain: SCRIPTED_DOMAIN,
      nonces: createRelayerNonces({
        commits: commitsStore,
        relayer: { address: computeAddress(relayerKey).toLowerCase(), countTransactions: async () => 0 },
      }),
      signAnchor: (nonce, head) =>
        signAnchorTransaction({ ...SCRIPTED_DOMAIN, relayerKey, nonce, head, fees }),
      now: Date.now,
      log,
    })
    committer.start()
    return commits.follow(followed, committer, () => committer.stop())
  }
  const enclaves = new EnclavePool({
    socketPaths: [options.enclaveSocket ?? enclave.socketPath],
    callsMax: 512,
    check: async () => [],
    isKnownLog: async () => false,
    introduce: async () => undefined,
    follow,
    settleMs: 0,
    log,
  })
  await enclaves.awaitUsable(ENCLAVE_WAIT_MS)
  const committer = { ...commits, stop: () => enclaves.stopFollowing() }
  const limits = await openLimits({
    ...{ database, enclaves, commits, log, areEnclavesLocal: () => false },
    tiers: options.tiers ?? UNLIMITED_TIERS,
  })
  const { fixedKey } = options
  const keys = createApiKeys({
    ...{ keys: createKeysStore(database), now: Date.now, random: randomBytes },
    fixedKey: fixedKey === undefined ? null : { text: fixedKey, accountId: randomUUID() },
  })
  const app = createGatewayApp({
    enclaves,
    committer,
    records,
    logs: createLogsStore(database),
    headAttestations: createHeadAttestationsStore(database),
    bootStatements: createBootStatementsStore(database),
    evidence: {
      anchors: createAnchorBlocksStore(database),
      proofs: { prove: async () => null },
      chainId: SCRIPTED_DOMAIN.chainId,
    },
    checks: {
      database: createDatabaseCheck(database),
      attestation: createAttestationCheck({ isRootKnown: false, now: Date.now }),
      chain: () => ({ isChainFailing: false, waitingCount: 0 }),
    },
    keys,
    limiter: limits.limiter,
    idempotency: limits.idempotency,
    registry: { nodes: nodesStore, inferences, random: randomBytes },
    upstream: { ...NO_UPSTREAM, ...options.upstream },
    nodes: options.nodes?.({ nodesStore, inferences, keys, log }) ?? createScriptedDispatcher(),
    credentials: options.credentials ?? new Map(),
    observers: options.observers ?? [],
    settings: { ...TEST_SETTINGS, ...options.settings },
    log,
    now: () => performance.timeOrigin + performance.now(),
    makeId: () => randomUUID().replaceAll('-', ''),
    makeRequestId: () => `req_${randomUUID()}`,
  })
  const { text: key } = await keys.create({ accountName: 'tests', name: 'first' })
  const { id: accountId } = await keys.openAccount('tests')
  const { port } = await app.listen({ host: '127.0.0.1', port: 0 })
  return {
    app,
    url: `http://127.0.0.1:${port}`,
    port,
    enclave,
    committer,
    keys,
    accounts: createAccounts({ keys: createKeysStore(database), tiers: null, now: Date.now }),
    nodesStore,
    inferences,
    key,
    accountId,
    logLines,
    breakDatabase: () => database.close(),
    stop: async () => {
      await app.close()
      await limits.stop().catch(() => undefined)
      await committer.stop()
      await enclaves.close()
      await enclave.stop()
      await database.close()
    },
  }
}
