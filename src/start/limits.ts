import { readFile } from 'node:fs/promises'
import { createIdempotency, type Idempotency } from '../accounts/idempotency.ts'
import { createIdempotencyStore } from '../accounts/idempotency-store.ts'
import { createRateLimiter, type RateLimiter } from '../accounts/limits/limiter.ts'
import { FREE_TIERS, type Tiers, UNLIMITED_TIERS } from '../accounts/limits/tiers.ts'
import { parseTiers } from '../accounts/limits/tiers-file.ts'
import { createProcessLease, LEASE_SECONDS } from '../accounts/process-lease.ts'
import { createProcessesStore } from '../accounts/processes-store.ts'
import { createRateLimitsStore } from '../accounts/rate-limits-store.ts'
import { ApiError } from '../api/errors.ts'
import type { EnclavePool } from '../enclaves/enclave-pool.ts'
import { StartFailure } from '../local/supervised-process.ts'
import type { Logger } from '../observability/logger.ts'
import type { Database } from '../storage/database.ts'
import type { Committer } from '../verified/committer.ts'
import { createRecordsStore } from '../verified/records-store.ts'

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
  readonly enclaves: Pick<EnclavePool, 'chooseNotary' | 'find'>
  readonly commits: Pick<Committer, 'waitFor'>
  /** Whether all enclaves were started by this process, and so end with it. */
  readonly areEnclavesLocal: () => boolean
  readonly log: Logger
}): Promise<CallLimits> {
  const { database, tiers, enclaves, commits, areEnclavesLocal, log } = options
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
    notary: (model) => reaching(enclaves.chooseNotary(model)),
    settleLog: (signal, notary) => settleLog({ enclaves, commits }, { notary, signal }),
    // Others may be added while it runs.
    get isOnlyEnclave() {
      return isAlone && areEnclavesLocal()
    },
    now: () => performance.now(),
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

async function reaching<Value>(asked: Promise<Value>): Promise<Value> {
  try {
    return await asked
  } catch (cause) {
    throw new ApiError('enclave_unavailable', 'Completions cannot be made at the moment, try again', {
      cause,
    })
  }
}

/** All leaves that the enclave has now are committed once the last of them is. Null when no enclave has this notary. */
async function settleLog(
  { enclaves, commits }: Pick<Parameters<typeof openLimits>[0], 'enclaves' | 'commits'>,
  { notary, signal }: { readonly notary: string | null; readonly signal: AbortSignal },
): Promise<string | null> {
  const enclave = notary === null ? null : await enclaves.find(notary)
  if (notary === null || enclave === null) return null
  enclave.forgetIdentity()
  const { notary: current, log } = await reaching(enclave.identity())
  if (current !== notary) return null
  if (log.size > 0) await commits.waitFor(notary, log.size - 1, signal)
  return notary
}
