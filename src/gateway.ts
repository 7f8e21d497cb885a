import type { ApiKeys } from './accounts/api-keys.ts'
import type { Tiers } from './accounts/limits/tiers.ts'
import type { App } from './api/app.ts'
import type { LeastRate } from './api/least-rate.ts'
import type { Route } from './api/route.ts'
import type { Embeddings } from './embeddings/embeddings.ts'
import type { EnclavePool, EnclavePoolOptions } from './enclaves/enclave-pool.ts'
import type { OwnFoundation } from './foundation.ts'
import type { Images } from './images/images.ts'
import type { GatewayFacts } from './local/banner.ts'
import type { ServingNodes } from './nodes/hub/open-nodes.ts'
import type { NodeLimits } from './nodes/runs/limits.ts'
import type { CallObserver } from './observability/call-scope.ts'
import type { WebSearch } from './search/web-search.ts'
import type { ProcessLease } from './storage/process-lease.ts'
import type { EnclaveCommits } from './verified/commits/enclave-commits.ts'

/** A gateway that serves. */
export type Gateway = {
  readonly facts: GatewayFacts
  readonly app: App
  /** Every route, those of the control socket alone included. */
  readonly routes: readonly Route[]
  readonly enclaves: EnclavePool
  readonly commits: EnclaveCommits
  readonly lease: Pick<ProcessLease, 'id'>
  readonly nodes: ServingNodes
  /**
   * Says that it is not ready, and serves on for the drain delay; no longer when the signal is
   * aborted.
   */
  drain(skip: AbortSignal): Promise<void>
  /** Reads tiers, prices and providers' keys again; whether they are in use. Never rejects. */
  reload(): Promise<boolean>
  /** Finishes running calls, commits, and ends every part; calling it twice is one stop. */
  stop(): Promise<void>
}

/**
 * Parts that a test brings: each stands in the place of the one that the configuration asks for.
 */
export type OwnParts = OwnFoundation & {
  /** How the pool takes enclaves. */
  readonly enclaves?: Partial<
    Pick<EnclavePoolOptions, 'check' | 'isKnownLog' | 'register' | 'settleMs'>
  >
  readonly tiers?: Tiers
  readonly keys?: ApiKeys
  readonly nodes?: ServingNodes
  readonly nodeLimits?: NodeLimits
  /** Slowest that bodies may arrive. Default LEAST_RATE. */
  readonly bodyRate?: LeastRate
  readonly embeddings?: Embeddings
  readonly images?: Images
  readonly search?: WebSearch
  /** Besides those of metrics and traces. */
  readonly observers?: readonly CallObserver[]
}
