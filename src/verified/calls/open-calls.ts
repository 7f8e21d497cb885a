import type { Route } from '../../api/route.ts'
import type { Anchoring } from '../../chain/anchoring.ts'
import { listWaitingAnchors } from '../../chain/waiting-anchors-store.ts'
import { createAttestationCheck } from '../../enclaves/enclave-check.ts'
import type { EnclavePool } from '../../enclaves/enclave-pool.ts'
import { proofPatienceMs } from '../../enclaves/encrypted-answer.ts'
import type { ServiceEnclaves } from '../../enclaves/service-enclaves.ts'
import type { Opening } from '../../observability/logger.ts'
import type { Metrics } from '../../observability/metrics.ts'
import { unixMs } from '../../runtime/clock.ts'
import { checkDatabase, type Database } from '../../storage/database.ts'
import type { EnclaveCommits } from '../commits/enclave-commits.ts'
import { verifiedCompletionRoutes } from './completion-routes.ts'
import { countTokensRoutes } from './count-tokens.ts'
import { createReadiness, healthRoutes } from './health.ts'
import { createVerifiedModels, verifiedModelRoutes } from './models.ts'
import { askProviderLists } from './provider-lists.ts'
import { createModelOutcomes, createVerifiedCompletions } from './verified-completions.ts'
import { waitingRoutes } from './waiting-routes.ts'

type CallSettings = {
  readonly isProduction: boolean
  readonly isStaging: boolean
  readonly anchorIntervalMs: number
  readonly asksProviderModels: boolean
  readonly bodyBytesMax: number
  readonly verifiedCallsMax: number
}

type CallParts = Opening &
  Pick<Parameters<typeof verifiedCompletionRoutes>[0], 'limiter' | 'idempotency'> &
  Pick<
    Parameters<typeof createVerifiedModels>[0],
    'credentials' | 'providerModels' | 'startedAt'
  > & {
    readonly database: Database
    /** PEM of the authorities that are trusted for providers. Null: the system's authorities. */
    readonly providerCas: readonly string[] | null
    readonly anchoring: Pick<Anchoring, 'status' | 'unreadableBlocks' | 'figures'>
    readonly enclaves: EnclavePool
    /** The enclaves of all gateways. */
    readonly service: ServiceEnclaves
    readonly commits: EnclaveCommits
    readonly metrics: Pick<Metrics, 'countModelList'> | null
    /** The gateway will stop soon and must not receive further calls. */
    readonly isDraining: () => boolean
  }

type CallRoutes = Readonly<
  Record<'completions' | 'counts' | 'models' | 'health' | 'waiting', readonly Route[]>
>

export function openVerifiedCalls(config: CallSettings, parts: CallParts): CallRoutes {
  const { database, anchoring, service, commits, credentials, limiter, log } = parts
  const { bodyBytesMax, verifiedCallsMax: callsMax } = config
  const outcomes = createModelOutcomes(unixMs)
  const calling = { credentials, outcomes, now: unixMs, log }
  const completions = createVerifiedCompletions({
    ...calling,
    enclaves: service,
    committer: commits,
  })
  return {
    counts: countTokensRoutes({ ...parts, bodyBytesMax }),
    completions: verifiedCompletionRoutes({
      completions,
      encrypted: {
        ...calling,
        enclaves: service,
        requireCommits: completions.requireCommits,
        recordOf: completions.recordOf,
        patienceMs: proofPatienceMs(config.anchorIntervalMs),
        limiter,
        bodyBytesMax,
      },
      limiter,
      idempotency: parts.idempotency,
      bodyBytesMax,
      callsMax,
    }),
    models: verifiedModelRoutes(
      createVerifiedModels({ ...parts, outcomes, lists: openProviderLists(config, parts) }),
    ),
    health: healthRoutes(openReadiness(config, parts), parts.isDraining, config),
    waiting: waitingRoutes({
      commits,
      anchoring,
      listAnchors: (limit) => listWaitingAnchors(database, limit),
    }),
  }
}

function openProviderLists({ asksProviderModels }: CallSettings, parts: CallParts) {
  if (!asksProviderModels) return { listed: () => [] }
  const lists = askProviderLists({
    ...parts,
    onAsked: (asked) => parts.metrics?.countModelList(asked),
    now: () => performance.now(),
  })
  parts.onStarted(() => lists.stop())
  return lists
}

function openReadiness(
  { isProduction, isStaging }: CallSettings,
  { database, anchoring, enclaves, commits }: CallParts,
) {
  const isRootKnown = isProduction && !isStaging
  const checks = {
    database: () => checkDatabase(database),
    enclave: () => enclaves.document(),
    attestation: createAttestationCheck({ isRootKnown, now: Date.now }),
    commits: commits.status,
    chain: anchoring.status,
    unreadableBlocks: anchoring.unreadableBlocks,
  }
  return createReadiness(checks, () => performance.now())
}
