import type { ApiKeys } from './accounts/api-keys.ts'
import type { Tiers } from './accounts/limits/tiers.ts'
import type { App } from './api/app.ts'
import type { LeastRate } from './api/least-rate.ts'
import type { Route } from './api/route.ts'
import type { GatewayConfig } from './config.ts'
import type { Embeddings } from './embeddings/embeddings.ts'
import type { EnclavePool, EnclavePoolOptions } from './enclaves/enclave-pool.ts'
import type { Foundation, OwnFoundation } from './foundation.ts'
import type { Images } from './images/images.ts'
import type { GatewayFacts } from './local/banner.ts'
import type { ServingNodes } from './nodes/hub/open-nodes.ts'
import type { NodeLimits } from './nodes/runs/limits.ts'
import type { CallObserver } from './observability/call-scope.ts'
import type { DemoEvidence } from './providers/open-providers.ts'
import type { WebSearch } from './search/web-search.ts'
import type { ProcessLease } from './storage/process-lease.ts'
import type { EnclaveCommits } from './verified/commits/enclave-commits.ts'

/** A running gateway. */
export type Gateway = {
  readonly facts: GatewayFacts
  readonly app: App
  /** Every route, including the routes that only the control socket serves. */
  readonly routes: readonly Route[]
  readonly enclaves: EnclavePool
  readonly commits: EnclaveCommits
  readonly lease: Pick<ProcessLease, 'id'>
  readonly nodes: ServingNodes
  /**
   * Makes the gateway report "not ready" and still serve calls during the drain delay. An aborted
   * signal ends the delay early.
   */
  drain(skip: AbortSignal): Promise<void>
  /**
   * Reads tiers, prices and providers' keys again. Resolves to true when the new values are in use.
   * Never rejects.
   */
  reload(): Promise<boolean>
  /** Finishes and commits running calls, and ends every part. A second call waits for the first. */
  stop(): Promise<void>
}

/** Parts that a test supplies in place of the configured parts. */
export type OwnParts = OwnFoundation & {
  /** Options of the pool of enclaves. */
  readonly enclaves?: Partial<
    Pick<EnclavePoolOptions, 'check' | 'isKnownLog' | 'register' | 'settleMs'>
  >
  readonly tiers?: Tiers
  readonly keys?: ApiKeys
  readonly nodes?: ServingNodes
  readonly nodeLimits?: NodeLimits
  /** Lowest rate at which a body may arrive. Default LEAST_RATE. */
  readonly bodyRate?: LeastRate
  readonly embeddings?: Embeddings
  readonly images?: Images
  readonly search?: WebSearch
  /** An attested provider whose evidence has development roots. */
  readonly attested?: DemoEvidence
  /** Observers in addition to those of metrics and traces. */
  readonly observers?: readonly CallObserver[]
}

/** Returns the facts that the banner shows. */
export function factsOf(
  config: GatewayConfig,
  parts: Foundation &
    Pick<GatewayFacts, 'url' | 'metricsUrl' | 'apiKey' | 'nodeId'> & {
      readonly development: { readonly file: string } | null
    },
): GatewayFacts {
  const { chain, anchoring, local } = parts
  return {
    url: parts.url,
    metricsUrl: parts.metricsUrl,
    apiKey: parts.apiKey,
    chain: {
      url: chain?.publicUrl ?? null,
      id: anchoring.domain.chainId,
      contract: anchoring.domain.contract,
      relayer: anchoring.relayer.address,
    },
    nodeId: parts.nodeId,
    demoOrigin: local?.demoOrigin ?? null,
    attested: local?.attested ?? null,
    rootFile: local?.rootFile ?? null,
    policyFile: parts.development?.file ?? null,
    isDatabaseEmbedded: config.databaseUrl === null,
  }
}
