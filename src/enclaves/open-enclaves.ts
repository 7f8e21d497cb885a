import type { LogDomain } from '#attestation/tree-head.ts'
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

/** An enclave process needs about a second to start, an enclave in an image about ten. */
const ENCLAVE_WAIT_MS = 20_000

type EnclaveSettings = {
  readonly isProduction: boolean
  readonly isStaging: boolean
  /** Null: enclaves with any measurements are used. */
  readonly releases: ReleasesConfig | null
  readonly enclave: EnclaveSource
  readonly verifiedCallsMax: number
  readonly processes: number
}

type EnclaveParts = Opening &
  Pick<EnclavePoolOptions, 'follow' | 'register' | 'isKnownLog'> & {
    /** Null if the operator runs the enclaves. */
    readonly local: { readonly socketPaths: readonly string[]; stop(): Promise<void> } | null
    /** The chain and the contract for which the enclaves sign. */
    readonly domain: LogDomain
    readonly adminLog: Pick<AdminLog, 'append'>
  }

/**
 * Waits until one enclave is in use. The others are used as soon as they answer. Rejects with
 * StartFailure if the gateway can use no enclave. `own` replaces options in tests.
 */
export async function openEnclaves(
  {
    isProduction,
    isStaging,
    releases: list,
    enclave,
    verifiedCallsMax,
    processes,
  }: EnclaveSettings,
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
    processes,
    check: createEnclaveCheck({
      domain,
      isProduction,
      isStaging,
      releases: () => releases.entries(),
      now: Date.now,
      monotonic: () => performance.now(),
    }),
    areReleasesCurrent: releases.isCurrent,
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

/** `bus` is null if the gateway works alone. */
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
