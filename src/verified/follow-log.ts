import { ApiError } from '../api/errors.ts'
import type { Anchoring } from '../chain/anchoring.ts'
import type { EnclavePool, EnclavePoolOptions } from '../enclaves/enclave-pool.ts'
import type { Logger } from '../observability/logger.ts'
import type { Database } from '../storage/database.ts'
import { createBootStatements } from './boot-statements.ts'
import { createBootStatementsStore } from './boot-statements-store.ts'
import { createCommitsStore } from './commits-store.ts'
import { createCommitter } from './committer.ts'
import { createEnclaveCommits, type EnclaveCommits } from './enclave-commits.ts'
import { createHeadAttestations } from './head-attestations.ts'
import { createHeadAttestationsStore } from './head-attestations-store.ts'
import { createLogsStore } from './logs-store.ts'
import type { RecordsStore } from './records-store.ts'

/** What follows the enclaves' logs, for the pool of these, and the commits of all of them. */
type FollowedLogs = Pick<EnclavePoolOptions, 'follow' | 'introduce' | 'isKnownLog'> & {
  readonly commits: EnclaveCommits
}

/**
 * Gives what follows logs of one chain and contract: for each a committer, which signs with the chain's relayer and wakes its
 * broadcaster, and what has its heads attested every `intervalMs`. `onCommit` hears of each commit.
 */
export function followLogs({
  database,
  records,
  anchoring,
  intervalMs,
  onCommit,
  log,
}: {
  readonly database: Database
  readonly records: RecordsStore
  readonly anchoring: Pick<Anchoring, 'domain' | 'nonces' | 'sign' | 'notify' | 'fetchRecentBlock'>
  readonly intervalMs: number
  readonly onCommit: ((commit: { readonly records: number; readonly durationMs: number }) => void) | undefined
  readonly log: Logger
}): FollowedLogs {
  const { domain } = anchoring
  const commitsStore = createCommitsStore(database)
  const store = createHeadAttestationsStore(database)
  const logs = createLogsStore(database)
  const boots = createBootStatements({ store: createBootStatementsStore(database), domain, log })
  const commits = createEnclaveCommits(records)
  return {
    commits,
    introduce: boots.introduce,
    isKnownLog: async (notary) => (await logs.find(notary)) !== null,
    follow(enclave) {
      const committer = createCommitter({
        ...{ enclave, commits: commitsStore, records, domain, log },
        nonces: anchoring.nonces,
        signAnchor: anchoring.sign,
        onCommit: () => {
          anchoring.notify()
          const { lastBatch, lastCommitMs } = committer.status()
          onCommit?.({ records: lastBatch, durationMs: lastCommitMs ?? 0 })
        },
        now: Date.now,
      })
      committer.start()
      const attestations = createHeadAttestations({
        ...{ enclave, committer, store, intervalMs, log },
        fetchBlock: anchoring.fetchRecentBlock,
        now: () => performance.now(),
      })
      attestations.start()
      return commits.follow(enclave, committer, async () => {
        await attestations.stop()
        await committer.stop()
      })
    },
  }
}

/** What calls with an Idempotency-Key ask of the enclaves. Both throw ApiError `enclave_unavailable`. */
type LogSettling = {
  /** Chooses the enclave for a call, and gives its notary. */
  notary(model: string): Promise<string>
  /**
   * Waits until all that the enclave of this notary has sealed until now is committed. Gives the notary of the log that this is true of:
   * null when no enclave has this one.
   */
  settleLog(signal: AbortSignal, notary: string | null): Promise<string | null>
}

/** Settles the logs of these enclaves, whose commits these are. */
export function settleLogs(
  enclaves: Pick<EnclavePool, 'chooseNotary' | 'find'>,
  commits: Pick<EnclaveCommits, 'waitFor'>,
): LogSettling {
  return {
    notary: (model) => reaching(enclaves.chooseNotary(model)),
    async settleLog(signal, notary) {
      const enclave = notary === null ? null : await enclaves.find(notary)
      if (notary === null || enclave === null) return null
      enclave.forgetIdentity()
      const { notary: current, log } = await reaching(enclave.identity())
      if (current !== notary) return null
      // All leaves that the enclave has now are committed once the last of them is.
      if (log.size > 0) await commits.waitFor(notary, log.size - 1, signal)
      return notary
    },
  }
}

async function reaching<Value>(asked: Promise<Value>): Promise<Value> {
  try {
    return await asked
  } catch (cause) {
    throw new ApiError('enclave_unavailable', 'Completions cannot be made at the moment, try again', {
      cause,
    })
  }
}
