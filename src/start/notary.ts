import type { ReleaseEntry } from '../../attestation/release/release-list.ts'
import { SETTLE_SECONDS } from '../accounts/idempotency.ts'
import { createAnchorBlocksStore } from '../chain/anchor-blocks-store.ts'
import type { Reanchorer } from '../chain/reanchorer.ts'
import type { RelayerFollowers } from '../chain/relayer-followers.ts'
import { createRelayerNonces, type RelayerNonces } from '../chain/relayer-nonces.ts'
import type { GatewayConfig } from '../config.ts'
import { createEnclaveClient } from '../enclaves/enclave-client.ts'
import { type Enclaves, openEnclaves } from '../enclaves/enclaves.ts'
import { ENCLAVES_MAX } from '../enclaves/limits.ts'
import type { Following, SeatOptions } from '../enclaves/seat.ts'
import { StartFailure } from '../local/supervised-process.ts'
import type { Logger } from '../observability/logger.ts'
import type { Meter } from '../observability/metrics/meter.ts'
import { createBootStatements } from '../verified/boot-statements.ts'
import { createBootStatementsStore } from '../verified/boot-statements-store.ts'
import { createCommitsStore } from '../verified/commits-store.ts'
import { CALLS_MAX } from '../verified/completion-routes.ts'
import type { EvidenceSources } from '../verified/evidence.ts'
import { createHeadAttestationsStore } from '../verified/head-attestations-store.ts'
import { createLogsStore } from '../verified/logs-store.ts'
import { createRecordsStore } from '../verified/records-store.ts'
import { startBlockKeeper } from './block-keeper.ts'
import { startFollowers, startReanchorer } from './broadcaster.ts'
import { relayerOf, startCommitter } from './committer.ts'
import { createEnclaveCheck } from './enclave-check.ts'
import { startHeadAttestations } from './head-attestations.ts'
import type { Parts } from './parts.ts'
import { pullUntilEnd } from './pull-until-end.ts'
import { startReleases } from './releases.ts'

/** What seals completions, stores them, anchors them and keeps the evidence. */
export type Notary = {
  readonly enclaves: Enclaves
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

/** How long enclaves that are just (re)starting are waited for: one boots in about a second, in an image in ten. */
const ENCLAVE_WAIT_MS = 20_000

/**
 * Starts all that follows the enclaves' logs, over parts that run; each is given to `onStarted` at once, and they are to be
 * stopped in the opposite order. Rejects with StartFailure when there is no enclave, or none for this gateway; those that are
 * not there yet are taken into use when they come.
 */
export async function startNotary(config: GatewayConfig, options: NotaryOptions): Promise<Notary> {
  const {
    parts: [database, chain, enclavePart],
    onStarted,
    log,
  } = options
  const releases = await startReleases(config, { onStarted, log })
  const commits = createCommitsStore(database)
  const nonces = createRelayerNonces({ commits, relayer: relayerOf(chain), log })
  const { confirmations, fees } = config
  const broadcaster = startFollowers({ database, chain, confirmations, nonces, log })
  onStarted(() => broadcaster.stop())
  const onReanchor = broadcaster.notify
  const reanchorer = startReanchorer({ database, chain, nonces, fees, onReanchor, log })
  onStarted(() => reanchorer.stop())
  const ends: (() => void)[] = []
  const seatOf = createSeats(config, {
    ...options,
    broadcaster,
    nonces,
    ends,
    entries: () => releases?.entries() ?? null,
  })
  const { socketPaths } = enclavePart
  const enclaves = openEnclaves({ socketPaths, seatOf, records: createRecordsStore(database) })
  onStarted(() => enclaves.close())
  onStarted(() => enclaves.stopFollowing())
  // Before commits stop: an enclave that ends in good order waits until all it sealed is committed.
  onStarted(() => {
    if (enclavePart.local !== null) for (const expectEnd of ends) expectEnd()
    return enclavePart.stop()
  })
  onStarted(() => enclaves.stopWatching())
  releases?.onChange(() => void enclaves.recheck())
  if (!(await enclaves.awaitUsable(ENCLAVE_WAIT_MS))) throw new StartFailure(describeFaults(enclaves))
  const blocks = startBlockKeeper({ blocks: createAnchorBlocksStore(database), chain, log })
  onStarted(() => blocks.stop())
  return { enclaves, broadcaster, reanchorer, evidence: blocks.sources }
}

/** What is opened for each socket. `ends` gets what tells a follower that its enclave is about to end. */
function createSeats(
  config: GatewayConfig,
  {
    parts: [database, chain],
    broadcaster,
    nonces,
    countCommit,
    ends,
    entries,
    log,
  }: NotaryOptions & {
    readonly broadcaster: RelayerFollowers
    readonly nonces: RelayerNonces
    readonly ends: (() => void)[]
    readonly entries: () => readonly ReleaseEntry[] | null
  },
): (socketPath: string) => SeatOptions {
  const { isProduction, fees } = config
  const store = createHeadAttestationsStore(database)
  const logs = createLogsStore(database)
  const { chainId, contract } = chain
  const boots = createBootStatements({
    store: createBootStatementsStore(database),
    domain: { chainId, contract },
    log,
  })
  const follow: SeatOptions['follow'] = (enclave): Following => {
    const { pull, expectEnd } = pullUntilEnd(enclave)
    ends.push(expectEnd)
    const following = { ...enclave, pull }
    const committer = startCommitter({
      ...{ enclave: following, database, chain, fees, broadcaster, countCommit, nonces, log },
    })
    const attestations = startHeadAttestations(config, { chain, enclave, committer, store, log })
    return {
      committer,
      stop: async () => {
        await attestations.stop()
        await committer.stop()
        ends.splice(ends.indexOf(expectEnd), 1)
      },
    }
  }
  const monotonic = () => performance.now()
  return (socketPath) => ({
    socketPath,
    openClient: (isExpected) =>
      createEnclaveClient({ socketPath, callsMax: CALLS_MAX, isExpected, now: monotonic }),
    check: createEnclaveCheck({ domain: chain, isProduction, releases: entries, now: Date.now, monotonic }),
    introduce: boots.introduce,
    isKnownLog: async (notary) => (await logs.find(notary)) !== null,
    follow,
    settleMs: SETTLE_SECONDS * 1000,
    log,
  })
}

function describeFaults(enclaves: Enclaves): string {
  const seats = enclaves.list()
  const name = (socketPath: string) => (seats.length === 1 ? '' : `${socketPath}: `)
  const faults = seats.map(({ socketPath, state, fault }) => {
    if (state === 'refused') return `${name(socketPath)}${fault}`
    return `enclave: ENCLAVE_URL: ${name(socketPath)}${fault || 'no answer'}`
  })
  return faults.slice(0, ENCLAVES_MAX).join('\n')
}
