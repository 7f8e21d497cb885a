import type { LogDomain } from '../../attestation/tree-head.ts'
import type { AdminLog } from '../accounts/admin-log-store.ts'
import { SETTLE_SECONDS } from '../accounts/idempotency.ts'
import { CONFIGURATION } from '../accounts/open-admin-log.ts'
import type { Route } from '../api/route.ts'
import type { Bus } from '../bus/bus.ts'
import type { Opening } from '../observability/logger.ts'
import { StartFailure } from '../runtime/starting.ts'
import { startReleases } from './accepted-releases.ts'
import { attestationRoutes, encryptionKeyRoutes } from './attestation-routes.ts'
import { createAttestations } from './attestations.ts'
import { createEnclaveCheck } from './enclave-check.ts'
import { EnclavePool, type EnclavePoolOptions } from './enclave-pool.ts'
import { proofPatienceMs } from './encrypted-answer.ts'
import { openPeerEnclaves } from './peer-enclaves.ts'
import { joinEnclaves, type ServiceEnclaves } from './service-enclaves.ts'
import type { EnclaveSource, ReleasesConfig } from './settings.ts'

/**
 * How long enclaves that are just (re)starting are waited for: one boots in about a second, in an
 * image in ten.
 */
const ENCLAVE_WAIT_MS = 20_000

type EnclaveSettings = {
  readonly isProduction: boolean
  readonly isStaging: boolean
  /** Null: enclaves are used with any measurements. */
  readonly releases: ReleasesConfig | null
  readonly enclave: EnclaveSource
  readonly verifiedCallsMax: number
}

type EnclaveParts = Opening &
  Pick<EnclavePoolOptions, 'follow' | 'register' | 'isKnownLog'> & {
    /** Enclaves that this process started; null: they are the operator's. */
    readonly local: { readonly socketPaths: readonly string[]; stop(): Promise<void> } | null
    /** What the enclaves sign for. */
    readonly domain: LogDomain
    readonly adminLog: Pick<AdminLog, 'append'>
  }

/**
 * Opens the pool, and waits until an enclave is in use; others are taken into use when they come.
 * Rejects with StartFailure when there is no enclave, or the gateway accepts none of them. `own`: a
 * test's own.
 */
export async function openEnclaves(
  { isProduction, isStaging, releases: list, enclave, verifiedCallsMax }: EnclaveSettings,
  { local, domain, adminLog, log, onStarted, ...following }: EnclaveParts,
  own: Partial<EnclavePoolOptions> = {},
): Promise<EnclavePool> {
  const releases = await startReleases(list, {
    isProduction,
    recordReleases: (details) =>
      adminLog.append(CONFIGURATION, { kind: 'releases.read', target: details.file, details }),
    log,
  })
  onStarted(async () => releases.stop())
  const pool = new EnclavePool({
    ...following,
    socketPaths: local?.socketPaths ?? (enclave.kind === 'remote' ? enclave.socketPaths : []),
    callsMax: verifiedCallsMax,
    check: createEnclaveCheck({
      domain,
      isProduction,
      isStaging,
      releases: () => releases.entries(),
      now: Date.now,
      monotonic: () => performance.now(),
    }),
    settleMs: SETTLE_SECONDS * 1000,
    log,
    ...own,
  })
  onStarted(() => pool.close())
  onStarted(() => pool.stopFollowing(local && (() => local.stop())))
  releases.onChange(() => void pool.recheck())
  if (!(await pool.awaitUsable(ENCLAVE_WAIT_MS))) throw new StartFailure(pool.describeFaults())
  return pool
}

/**
 * Opens the enclaves of the service: those of this gateway and, over the bus, those of the others.
 * `bus`: null for a gateway that is alone. Gives the routes of attestations and encryption keys.
 */
export function openServiceEnclaves(
  { anchorIntervalMs }: { readonly anchorIntervalMs: number },
  parts: Pick<Parameters<typeof openPeerEnclaves>[0], 'credentials' | 'proofFor'> &
    Opening & { readonly bus: Bus | null; readonly enclaves: EnclavePool },
): ServiceEnclaves & { readonly routes: readonly Route[] } {
  const { bus, enclaves } = parts
  const { check } = enclaves
  const patienceMs = proofPatienceMs(anchorIntervalMs)
  const peers = bus && openPeerEnclaves({ ...parts, bus, check, patienceMs })
  parts.onStarted(async () => peers?.stop())
  const service = joinEnclaves(enclaves, peers)
  const attestations = createAttestations({
    enclaves,
    peers,
    listNotaries: service.notaries,
    now: () => performance.now(),
  })
  return {
    ...service,
    routes: [...attestationRoutes(attestations), ...encryptionKeyRoutes(service)],
  }
}
