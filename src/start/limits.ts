import { readFile } from 'node:fs/promises'
import type { Identity } from '../../enclave/protocol/messages.ts'
import { ApiError } from '../errors.ts'
import { createRateLimiter, type RateLimiter } from '../limits/limiter.ts'
import { FREE_TIERS, type Tiers, UNLIMITED_TIERS } from '../limits/tiers.ts'
import { parseTiers } from '../limits/tiers-file.ts'
import { StartFailure } from '../local/supervised-process.ts'
import type { Logger } from '../logger.ts'
import type { Committer } from '../services/committer.ts'
import type { EnclaveClient } from '../services/enclave-client.ts'
import { createIdempotency, type Idempotency } from '../services/idempotency.ts'
import { createProcessLease, LEASE_SECONDS } from '../services/process-lease.ts'
import type { Database } from '../stores/database.ts'
import { createIdempotencyStore } from '../stores/idempotency.ts'
import { createProcessesStore } from '../stores/processes.ts'
import { createRateLimitsStore } from '../stores/rate-limits.ts'
import { createRecordsStore } from '../stores/records.ts'

/** What bounds calls, and makes them once. `stop` when no call runs any more, and while the database is open. */
export type CallLimits = {
  readonly limiter: RateLimiter
  readonly idempotency: Idempotency
  stop(): Promise<void>
}

/** Gives the tiers of a file. Rejects with StartFailure, which tells every fault of it. */
export async function readTiers(file: string): Promise<Tiers> {
  const text = await readFile(file, 'utf8').catch((error: NodeJS.ErrnoException) => {
    throw new StartFailure(`limits: RATE_LIMIT_TIERS_FILE ${file} cannot be read (${error.code})`)
  })
  const parsed = parseTiers(text)
  if (parsed.kind === 'tiers') return parsed.tiers
  const faults = parsed.faults.map((fault) => `limits: RATE_LIMIT_TIERS_FILE: ${fault}`)
  throw new StartFailure(faults.join('\n'))
}

/**
 * Gives the tiers of `file`; without one, no limits for development, and for production those of the free tier, so that no key
 * that leaks spends without a bound. Rejects as readTiers does.
 */
export async function chooseTiers(
  file: string | null,
  { isProduction }: { readonly isProduction: boolean },
): Promise<Tiers> {
  if (file !== null) return readTiers(file)
  return isProduction ? FREE_TIERS : UNLIMITED_TIERS
}

/** Enters this process among the living, and opens what hangs on that. Rejects with the driver's error. */
export async function openLimits(options: {
  readonly database: Database
  readonly tiers: Tiers
  readonly enclave: Pick<EnclaveClient, 'identity' | 'forgetIdentity'>
  readonly committer: Pick<Committer, 'waitFor'>
  /** Whether the enclave was started by this process, and so ends with it. */
  readonly isEnclaveLocal: boolean
  readonly log: Logger
}): Promise<CallLimits> {
  const { database, tiers, isEnclaveLocal, log } = options
  // The embedded database takes one process.
  const isAlone = database.kind === 'embedded'
  const makeId = () => crypto.randomUUID()
  const lease = createProcessLease({
    processes: createProcessesStore(database),
    makeId,
    isAlone,
    log,
  })
  await lease.start()
  const limiter = createRateLimiter({
    store: createRateLimitsStore(database),
    tiers,
    processId: () => lease.id(),
    leaseSeconds: LEASE_SECONDS,
    log,
  })
  const idempotency = createIdempotency({
    store: createIdempotencyStore(database),
    records: createRecordsStore(database),
    lease,
    notary: async () => (await identify(options)).notary,
    settleLog: (signal) => settleLog(options, signal),
    isOnlyEnclave: isAlone && isEnclaveLocal,
    now: Date.now,
    log,
  })
  return {
    limiter,
    idempotency,
    stop: async () => {
      await limiter.stop()
      await lease.stop()
    },
  }
}

type Followed = Pick<Parameters<typeof openLimits>[0], 'enclave' | 'committer'>

async function identify({ enclave }: Pick<Followed, 'enclave'>): Promise<Identity> {
  try {
    return await enclave.identity()
  } catch (cause) {
    throw new ApiError('enclave_unavailable', 'Completions cannot be made at the moment, try again', {
      cause,
    })
  }
}

/** All leaves that the enclave has now are committed once the last of them is. */
async function settleLog({ enclave, committer }: Followed, signal: AbortSignal): Promise<string> {
  enclave.forgetIdentity()
  const { notary, log } = await identify({ enclave })
  if (log.size > 0) await committer.waitFor(notary, log.size - 1, signal)
  return notary
}
