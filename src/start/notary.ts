import { SETTLE_SECONDS } from '../accounts/idempotency.ts'
import { createAnchorBlocksStore } from '../chain/anchor-blocks-store.ts'
import type { Reanchorer } from '../chain/reanchorer.ts'
import type { RelayerFollowers } from '../chain/relayer-followers.ts'
import { createRelayerNonces } from '../chain/relayer-nonces.ts'
import type { GatewayConfig } from '../config.ts'
import type { EnclaveEndpoint } from '../enclaves/enclave-endpoint.ts'
import { type EnclavePool, startEnclaves } from '../enclaves/enclave-pool.ts'
import type { Logger } from '../observability/logger.ts'
import type { Meter } from '../observability/metrics/meter.ts'
import { createBootStatements } from '../verified/boot-statements.ts'
import { createBootStatementsStore } from '../verified/boot-statements-store.ts'
import { createCommitsStore } from '../verified/commits-store.ts'
import { CALLS_MAX } from '../verified/completion-routes.ts'
import { createEnclaveCommits, type EnclaveCommits } from '../verified/enclave-commits.ts'
import type { EvidenceSources } from '../verified/evidence.ts'
import { createHeadAttestationsStore } from '../verified/head-attestations-store.ts'
import { createLogsStore } from '../verified/logs-store.ts'
import { createRecordsStore } from '../verified/records-store.ts'
import { startBlockKeeper } from './block-keeper.ts'
import { startFollowers, startReanchorer } from './broadcaster.ts'
import { relayerOf, startCommitter } from './committer.ts'
import { startHeadAttestations } from './head-attestations.ts'
import type { Parts } from './parts.ts'

/** What seals completions, stores them, anchors them and keeps the evidence. */
export type Notary = {
  readonly enclaves: EnclavePool
  readonly commits: EnclaveCommits
  readonly broadcaster: RelayerFollowers
  readonly reanchorer: Reanchorer
  readonly evidence: EvidenceSources
}

type NotaryOptions = {
  readonly parts: Parts
  readonly countCommit: Meter['countCommit'] | undefined
  readonly onStarted: (stop: () => Promise<void>) => void
  readonly log: Logger
}

/**
 * Starts all that follows the enclaves' logs, over parts that run; each is given to `onStarted` at once, and they are to be
 * stopped in the opposite order. Rejects with StartFailure when there is no enclave, or none for this gateway; those that are
 * not there yet are taken into use when they come.
 */
export async function startNotary(config: GatewayConfig, options: NotaryOptions): Promise<Notary> {
  const {
    parts: [database, chain, enclavePart],
    countCommit,
    onStarted,
    log,
  } = options
  const { isProduction, confirmations, fees } = config
  const commitsStore = createCommitsStore(database)
  const nonces = createRelayerNonces({ commits: commitsStore, relayer: relayerOf(chain), log })
  const broadcaster = startFollowers({ database, chain, confirmations, nonces, log })
  onStarted(() => broadcaster.stop())
  const onReanchor = broadcaster.notify
  const reanchorer = startReanchorer({ database, chain, nonces, fees, onReanchor, log })
  onStarted(() => reanchorer.stop())
  const logs = createLogsStore(database)
  const { chainId, contract } = chain
  const boots = createBootStatements({
    store: createBootStatementsStore(database),
    domain: { chainId, contract },
    log,
  })
  const store = createHeadAttestationsStore(database)
  const commits = createEnclaveCommits(createRecordsStore(database))
  const follow = (enclave: EnclaveEndpoint) => {
    const committer = startCommitter({
      ...{ enclave, database, chain, fees, broadcaster, countCommit, nonces, log },
    })
    const attestations = startHeadAttestations(config, { chain, enclave, committer, store, log })
    return commits.follow(enclave, committer, async () => {
      await attestations.stop()
      await committer.stop()
    })
  }
  const enclaves = await startEnclaves({
    socketPaths: enclavePart.socketPaths,
    callsMax: CALLS_MAX,
    domain: chain,
    isProduction,
    releases: config.releases,
    introduce: boots.introduce,
    isKnownLog: async (notary) => (await logs.find(notary)) !== null,
    follow,
    settleMs: SETTLE_SECONDS * 1000,
    endEnclaves: enclavePart.local === null ? null : () => enclavePart.stop(),
    onStarted,
    log,
  })
  const blocks = startBlockKeeper({ blocks: createAnchorBlocksStore(database), chain, log })
  onStarted(() => blocks.stop())
  return { enclaves, commits, broadcaster, reanchorer, evidence: blocks.sources }
}
