import type { EnclaveEndpoint, LogFollower } from '../enclaves/enclave-endpoint.ts'
import { CommitError } from './commit-waiters.ts'
import { type Committer, type CommitterStatus, NO_FIGURES } from './committer.ts'
import type { RecordsStore } from './records-store.ts'

/** The committers of all enclaves as one. */
export type EnclaveCommits = Pick<Committer, 'waitFor' | 'status'> & {
  /** Counts in a committer that was started for an endpoint's log, until `stop` of what this gives. `stop` ends it, and what hangs on it. */
  follow(endpoint: FollowedEndpoint, committer: FollowingCommitter, stop: () => Promise<void>): LogFollower
  /** As status, but of the committer that is worst off: what an operator has to see. */
  worst(): CommitterStatus
}

type FollowedEndpoint = Pick<EnclaveEndpoint, 'state' | 'hasHeld'>
type FollowingCommitter = Pick<Committer, 'waitFor' | 'status'>

/** Commits of every log that is followed. `status` is of the committer that is best off: what callers can still have. */
export function createEnclaveCommits(records: Pick<RecordsStore, 'findByIndex'>): EnclaveCommits {
  const followed = new Map<FollowedEndpoint, FollowingCommitter>()
  const statuses = () => [...followed.values()].map((committer) => committer.status())
  return {
    follow(endpoint, committer, stop) {
      followed.set(endpoint, committer)
      return {
        waitFor: (...leaf) => committer.waitFor(...leaf),
        status() {
          const { phase, failingForMs, size } = committer.status()
          return { isCommitting: phase !== 'refusing' && failingForMs === 0, size }
        },
        stop() {
          followed.delete(endpoint)
          return stop()
        },
      }
    },
    waitFor: async (notary, index, signal) => {
      const endpoints = [...followed.keys()]
      // Several endpoints may lead to one enclave, and one of them be drained: first who follows its log now.
      const endpoint =
        endpoints.find(({ state }) => state.notary === notary) ?? endpoints.find((one) => one.hasHeld(notary))
      const committer = endpoint && followed.get(endpoint)
      if (committer) return committer.waitFor(notary, index, signal)
      // Its log is settled, or its endpoint was removed.
      const record = await records.findByIndex(notary, index)
      if (record === null)
        throw new CommitError('notary_gone', `leaf ${index} of log ${notary} is not stored`)
      return record
    },
    status: () => merge(statuses(), 1),
    worst: () => merge(statuses(), -1),
  }
}

/** From worst to best. */
const PHASES: readonly CommitterStatus['phase'][] = ['stopped', 'refusing', 'failing', 'opening', 'following']

/** The status that stands for all: with `sign` 1 that of the best off, with -1 of the worst; counts are of all together. */
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
    largestBatch: Math.max(chosen.largestBatch, ...statuses.map(({ largestBatch }) => largestBatch)),
    lastBatch: newest.lastBatch,
    lastCommitAtMs: newest.lastCommitAtMs,
    lastCommitMs: newest.lastCommitMs,
  }
}

/** Of two that fail, the one that has failed for less is better off. */
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
