import { randomUUID } from 'node:crypto'
import type { DialectName } from '#attestation/dialects/dialect-names.ts'
import { ApiError } from '../../api/errors.ts'
import type { Anchoring } from '../../chain/anchoring.ts'
import type { EnclaveEndpoint } from '../../enclaves/enclave-endpoint.ts'
import type { EnclavePool, EnclavePoolOptions } from '../../enclaves/enclave-pool.ts'
import type { LogFollower } from '../../enclaves/followed-log.ts'
import type { ProofFor } from '../../enclaves/peer-channels.ts'
import type { Opening } from '../../observability/logger.ts'
import type { Metrics } from '../../observability/metrics.ts'
import type { Database } from '../../storage/database.ts'
import { CommitError } from '../commit-error.ts'
import { createBootStatements } from '../logs/boot-statements.ts'
import { createBootStatementsStore } from '../logs/boot-statements-store.ts'
import { createHeadAttestations } from '../logs/head-attestations.ts'
import { createHeadAttestationsStore } from '../logs/head-attestations-store.ts'
import { createLogsStore } from '../logs/logs-store.ts'
import type { RecordsStore } from '../records/records-store.ts'
import { NO_FIGURES } from './commit-figures.ts'
import { ALWAYS_OURS, createCommitTurns } from './commit-turns.ts'
import { createCommitsStore } from './commits-store.ts'
import { proofOf } from './committed-heads.ts'
import { type Committer, type CommitterStatus, createCommitter } from './committer.ts'
import { createIntervalAnchors, type IntervalAnchors } from './interval-anchors.ts'
import { createUnanchoredStore } from './unanchored-store.ts'

type FollowedLogs = Pick<EnclavePoolOptions, 'follow' | 'register' | 'isKnownLog'> & {
  readonly commits: EnclaveCommits
}

/**
 * Opens the commits for one chain and contract. Each log gets a committer, and its enclave is
 * regularly asked to attest the log's state.
 */
export function openCommits(
  config: {
    readonly headAttestationIntervalMs: number
    /** How long commits of a log wait for their common anchor. 0: each commit has an anchor. */
    readonly anchorIntervalMs: number
  },
  parts: Opening & {
    readonly database: Database
    readonly records: RecordsStore
    readonly anchoring: Anchoring
    readonly metrics: Pick<Metrics, 'countCommit' | 'countRace'> | null
  },
): FollowedLogs {
  const { database, records, anchoring, metrics, log, onStarted } = parts
  const { headAttestationIntervalMs: intervalMs, anchorIntervalMs } = config
  const { domain } = anchoring
  const onRace = () => metrics?.countRace()
  const commitsStore = createCommitsStore(database)
  const store = createHeadAttestationsStore(database)
  const logs = createLogsStore(database)
  const boots = createBootStatements({ store: createBootStatementsStore(database), domain, log })
  const followers = new Set<Committer>()
  const { session } = database
  anchoring.nonces.onRace = onRace
  const turns =
    session === null
      ? ALWAYS_OURS
      : createCommitTurns({
          session,
          gateway: randomUUID(),
          onNonce(taken) {
            anchoring.nonces.recordTaken(taken)
            // Another gateway stored an anchor that this gateway may have to send to the chain.
            anchoring.notify()
          },
        })
  const anchors = createIntervalAnchors({
    store: createUnanchoredStore(database),
    turns,
    intervalMs: anchorIntervalMs,
    log,
    nonces: anchoring.nonces,
    chainId: domain.chainId,
    sign: anchoring.sign,
    now: Date.now,
    onAnchored(anchored) {
      for (const committer of followers) committer.publish(anchored)
      anchoring.notify()
    },
  })
  anchors.start()
  // Parts stop in the reverse order of their start, so this part stops after all committers.
  onStarted(() => anchors.stop())
  const commits = createEnclaveCommits(records, anchors)
  return {
    commits,
    register: boots.register,
    isKnownLog: async (notary) => (await logs.find(notary)) !== null,
    follow(endpoint) {
      const { client: enclave } = endpoint
      const committer = createCommitter({
        enclave,
        commits: commitsStore,
        records,
        turns,
        anchors,
        domain,
        log,
        onRace,
        nonces: anchoring.nonces,
        signAnchor: anchoring.sign,
        onCommit: () => {
          anchoring.notify()
          const { lastBatch, lastCommitMs } = committer.status()
          metrics?.countCommit({ records: lastBatch, durationMs: lastCommitMs ?? 0 })
        },
        now: Date.now,
      })
      followers.add(committer)
      committer.start()
      const attestations = createHeadAttestations({
        enclave,
        committer,
        store,
        intervalMs,
        log,
        fetchBlock: anchoring.fetchRecentBlock,
        now: () => performance.now(),
      })
      attestations.start()
      return commits.follow(endpoint, committer, async () => {
        await attestations.stop()
        await committer.stop()
        followers.delete(committer)
      })
    },
  }
}

/** For calls with an Idempotency-Key. Both functions throw ApiError `enclave_unavailable`. */
type LogSettling = {
  /** Chooses the enclave for a call and returns its notary. */
  notary(model: string, dialect: DialectName): Promise<string>
  /**
   * Waits until everything that the enclave has sealed so far is committed. If the enclave no
   * longer runs, waits until all commits of its log are anchored.
   */
  settleLog(signal: AbortSignal, notary: string | null): Promise<void>
}

export function settleLogs(
  enclaves: Pick<EnclavePool, 'chooseNotary' | 'find'>,
  commits: Pick<EnclaveCommits, 'waitFor' | 'settleAnchors'>,
): LogSettling {
  return {
    notary: (model, dialect) => reaching(enclaves.chooseNotary(model, dialect)),
    async settleLog(signal, notary) {
      if (notary === null) return
      const enclave = await enclaves.find(notary)
      enclave?.forgetIdentity()
      const identity = enclave === null ? null : await reaching(enclave.identity())
      if (identity?.notary !== notary) {
        // The enclave no longer runs, but its committed completions may wait for their anchor.
        await commits.settleAnchors(notary, signal)
        return
      }
      const { log } = identity
      // Leaves are committed in the order of the log, so the last leaf is committed last.
      if (log.size > 0) await commits.waitFor(notary, log.size - 1, signal)
    },
  }
}

/** Waits for the records of encrypted calls, because a record contains the call's proof. */
export function proofsOf(commits: Pick<EnclaveCommits, 'waitFor'>): ProofFor {
  return async ({ notary, index, call }, signal) =>
    proofOf(call, await commits.waitFor(notary, index, signal))
}

async function reaching<Value>(asked: Promise<Value>): Promise<Value> {
  try {
    return await asked
  } catch (cause) {
    throw new ApiError(
      'enclave_unavailable',
      'Completions cannot be made at the moment, try again',
      {
        cause,
      },
    )
  }
}

/** The committers of all enclaves, used like one committer. */
export type EnclaveCommits = Pick<Committer, 'waitFor' | 'isStandby' | 'status'> & {
  /**
   * The committer must be running already. `stop` of the result ends the committer and all work
   * that depends on the committer.
   */
  follow(
    endpoint: FollowedEndpoint,
    committer: FollowingCommitter,
    stop: () => Promise<void>,
  ): LogFollower
  /** Resolves when all commits of a log are anchored and their records can be read. */
  settleAnchors(notary: string, signal: AbortSignal): Promise<void>
  /** The status of the committer in the worst state, for the operator. */
  worst(): CommitterStatus
}

type FollowedEndpoint = Pick<EnclaveEndpoint, 'state' | 'hasHeld'>
type FollowingCommitter = Pick<Committer, 'waitFor' | 'isStandby' | 'status'>

/**
 * `status` reports the committer in the best state, because callers can still use that committer.
 */
export function createEnclaveCommits(
  records: Pick<RecordsStore, 'findByIndex'>,
  anchors: Pick<IntervalAnchors, 'settle'>,
): EnclaveCommits {
  const followed = new Map<FollowedEndpoint, FollowingCommitter>()
  const statuses = () => [...followed.values()].map((committer) => committer.status())
  return {
    follow(endpoint, committer, stop) {
      followed.set(endpoint, committer)
      return {
        waitFor: (...leaf) => committer.waitFor(...leaf),
        status() {
          const { phase, failingForMs, size, fault } = committer.status()
          const isCommitting = phase !== 'refusing' && failingForMs === 0
          return { isCommitting, size, fault: fault?.message ?? '' }
        },
        stop() {
          followed.delete(endpoint)
          return stop()
        },
      }
    },
    waitFor: async (notary, index, signal, given) => {
      const endpoints = [...followed.keys()]
      // Prefers an endpoint whose present enclave has this notary to an endpoint whose earlier
      // enclave had the notary.
      const endpoint =
        endpoints.find(({ state }) => state.notary === notary) ??
        endpoints.find((one) => one.hasHeld(notary))
      const committer = endpoint && followed.get(endpoint)
      if (committer) return committer.waitFor(notary, index, signal, given)
      // The log is settled already, or its endpoint was removed.
      await anchors.settle(notary, signal)
      const record = await records.findByIndex(notary, index)
      if (record === null)
        throw new CommitError('notary_gone', `leaf ${index} of log ${notary} is not stored`)
      return record
    },
    isStandby: (notary) => [...followed.values()].some((committer) => committer.isStandby(notary)),
    settleAnchors: anchors.settle,
    status: () => merge(statuses(), 1),
    worst: () => merge(statuses(), -1),
  }
}

const PHASES: readonly CommitterStatus['phase'][] = [
  'stopped',
  'refusing',
  'failing',
  'opening',
  'following',
]

/** Takes the phase from the best committer (`sign` 1) or from the worst (-1). Counts are sums. */
function merge(statuses: readonly CommitterStatus[], sign: 1 | -1): CommitterStatus {
  const [chosen = STOPPED] = statuses.toSorted((one, other) => sign * (rankOf(other) - rankOf(one)))
  const newest = statuses.reduce<CommitterStatus>(
    (best, status) => ((status.lastCommitAtMs ?? 0) > (best.lastCommitAtMs ?? 0) ? status : best),
    chosen,
  )
  const sum = (read: (status: CommitterStatus) => number) =>
    statuses.reduce((total, status) => total + read(status), 0)
  return {
    ...chosen,
    commits: sum(({ commits }) => commits),
    records: sum(({ records }) => records),
    races: sum(({ races }) => races),
    failures: sum(({ failures }) => failures),
    waiting: sum(({ waiting }) => waiting),
    size: sum(({ size }) => size),
    largestBatch: Math.max(
      chosen.largestBatch,
      ...statuses.map(({ largestBatch }) => largestBatch),
    ),
    lastBatch: newest.lastBatch,
    lastCommitAtMs: newest.lastCommitAtMs,
    lastCommitMs: newest.lastCommitMs,
  }
}

/** A failing committer ranks higher if it has failed for a shorter time. */
function rankOf({ phase, failingForMs }: CommitterStatus): number {
  return PHASES.indexOf(phase) - failingForMs / (failingForMs + 1)
}

const STOPPED: CommitterStatus = {
  ...NO_FIGURES,
  phase: 'stopped',
  fault: null,
  failingForMs: 0,
  notary: null,
  size: 0,
  waiting: 0,
}
