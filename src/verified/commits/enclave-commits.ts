import { randomUUID } from 'node:crypto'
import { ApiError } from '../../api/errors.ts'
import type { Anchoring } from '../../chain/anchoring.ts'
import type { EnclaveEndpoint } from '../../enclaves/enclave-endpoint.ts'
import type { EnclavePool, EnclavePoolOptions } from '../../enclaves/enclave-pool.ts'
import type { LogFollower } from '../../enclaves/followed-log.ts'
import type { Logger } from '../../observability/logger.ts'
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
import { type Committer, type CommitterStatus, createCommitter } from './committer.ts'
import { createIntervalAnchors, type IntervalAnchors } from './interval-anchors.ts'
import { createUnanchoredStore } from './unanchored-store.ts'

/** What follows the enclaves' logs, for the pool of these, and the commits of all of them. */
type FollowedLogs = Pick<EnclavePoolOptions, 'follow' | 'register' | 'isKnownLog'> & {
  readonly commits: EnclaveCommits
  /** Call it when no log is followed. */
  stop(): Promise<void>
}

/**
 * Gives what follows logs of one chain and contract: for each a committer, which signs with the
 * chain's relayer and wakes its broadcaster, and what has its heads attested every `intervalMs`.
 * `onCommit` is called after each commit.
 */
export function followLogs({
  database,
  records,
  anchoring,
  intervalMs,
  anchorIntervalMs,
  onCommit,
  onRace = () => undefined,
  log,
}: {
  readonly database: Database
  readonly records: RecordsStore
  readonly anchoring: Pick<Anchoring, 'domain' | 'nonces' | 'sign' | 'notify' | 'fetchRecentBlock'>
  readonly intervalMs: number
  /** How long commits of a log wait for their one anchor; 0: each has its own. */
  readonly anchorIntervalMs: number
  /** Called after each commit that another gateway made first. */
  readonly onRace?: (() => void) | undefined
  readonly onCommit:
    | ((commit: { readonly records: number; readonly durationMs: number }) => void)
    | undefined
  readonly log: Logger
}): FollowedLogs {
  const { domain } = anchoring
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
            // It may be this one that brings them onto the chain.
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
  const commits = createEnclaveCommits(records, anchors)
  return {
    commits,
    stop: () => anchors.stop(),
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
          onCommit?.({ records: lastBatch, durationMs: lastCommitMs ?? 0 })
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

/**
 * What calls with an Idempotency-Key ask of the enclaves. Both throw ApiError
 * `enclave_unavailable`.
 */
type LogSettling = {
  /** Chooses the enclave for a call, and gives its notary. */
  notary(model: string): Promise<string>
  /**
   * Waits until all that the enclave of this notary has sealed until now is committed; where it is
   * gone, until what is committed has its anchors.
   */
  settleLog(signal: AbortSignal, notary: string | null): Promise<void>
}

/** Settles the logs of these enclaves, whose commits these are. */
export function settleLogs(
  enclaves: Pick<EnclavePool, 'chooseNotary' | 'find'>,
  commits: Pick<EnclaveCommits, 'waitFor' | 'settleAnchors'>,
): LogSettling {
  return {
    notary: (model) => reaching(enclaves.chooseNotary(model)),
    async settleLog(signal, notary) {
      if (notary === null) return
      const enclave = await enclaves.find(notary)
      enclave?.forgetIdentity()
      const identity = enclave === null ? null : await reaching(enclave.identity())
      if (identity?.notary !== notary) {
        // Its enclave is gone. What it sealed may be committed, and wait for its anchor.
        await commits.settleAnchors(notary, signal)
        return
      }
      const { log } = identity
      // All leaves that the enclave has now are committed once the last of them is.
      if (log.size > 0) await commits.waitFor(notary, log.size - 1, signal)
    },
  }
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

/** The committers of all enclaves as one. */
export type EnclaveCommits = Pick<Committer, 'waitFor' | 'isStandby' | 'status'> & {
  /**
   * Counts in a committer that was started for an endpoint's log, until `stop` of what this gives.
   * `stop` ends it, and what hangs on it.
   */
  follow(
    endpoint: FollowedEndpoint,
    committer: FollowingCommitter,
    stop: () => Promise<void>,
  ): LogFollower
  /** Resolves when all that is committed of a log is anchored, so that its records can be read. */
  settleAnchors(notary: string, signal: AbortSignal): Promise<void>
  /** As status, but of the committer that is worst off: what an operator has to see. */
  worst(): CommitterStatus
}

type FollowedEndpoint = Pick<EnclaveEndpoint, 'state' | 'hasHeld'>
type FollowingCommitter = Pick<Committer, 'waitFor' | 'isStandby' | 'status'>

/**
 * Commits of every log that is followed. `status` is of the committer that is best off: what
 * callers can still have.
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
      // Several endpoints may lead to one enclave, and one of them be drained: first who follows
      // its log now.
      const endpoint =
        endpoints.find(({ state }) => state.notary === notary) ??
        endpoints.find((one) => one.hasHeld(notary))
      const committer = endpoint && followed.get(endpoint)
      if (committer) return committer.waitFor(notary, index, signal, given)
      // Its log is settled, or its endpoint was removed.
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

/** From worst to best. */
const PHASES: readonly CommitterStatus['phase'][] = [
  'stopped',
  'refusing',
  'failing',
  'opening',
  'following',
]

/**
 * The status that stands for all: with `sign` 1 that of the best off, with -1 of the worst; counts
 * are of all together.
 */
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

/** Of two that fail, the one with the shorter failure is better off. */
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
