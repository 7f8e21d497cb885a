import type { GatewayConfig } from '../config.ts'
import type { Parts } from './parts.ts'

/** What to tell whoever started the gateway. */
export type GatewayFacts = {
  readonly url: string
  /** Where metrics are served; null when they are not. */
  readonly metricsUrl: string | null
  /** Null in production, where no key is made. */
  readonly apiKey: string | null
  readonly chain: {
    readonly url: string | null
    readonly id: number
    readonly contract: string
    readonly relayer: string
  }
  /** The node in front of the demo provider; null when none was started here. */
  readonly nodeId: string | null
  /** The demo provider's origin and the development root's certificate, when the enclave was started here. */
  readonly demoOrigin: string | null
  readonly rootFile: string | null
  readonly isDatabaseEmbedded: boolean
}

/** Gives the facts of a gateway that serves. `apiKey` is the one to show, `nodeId` the node that was started here. */
export function describeGateway(
  config: GatewayConfig,
  [, { publicUrl, chainId, contract, relayer }, { local }]: Parts,
  shown: Pick<GatewayFacts, 'url' | 'metricsUrl' | 'apiKey' | 'nodeId'>,
): GatewayFacts {
  return {
    ...shown,
    chain: { url: publicUrl, id: chainId, contract, relayer: relayer.address },
    demoOrigin: local?.demoOrigin ?? null,
    rootFile: local?.rootFile ?? null,
    isDatabaseEmbedded: config.databaseUrl === null,
  }
}
