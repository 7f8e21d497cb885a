import { readFile } from 'node:fs/promises'
import type { ProviderKind } from '#attestation/providers/evidence/evidence-document.ts'
import { parsePolicy, readProviderPolicies } from '#attestation/report/policy-file.ts'
import type { ProviderEntry } from '#enclave/protocol/enclave-api.ts'
import type { Route } from '../api/route.ts'
import type { Anchoring } from '../chain/anchoring.ts'
import type { EnclavePool } from '../enclaves/enclave-pool.ts'
import { providersOf } from '../enclaves/provider-table.ts'
import type { Opening } from '../observability/logger.ts'
import type { Metrics } from '../observability/metrics.ts'
import type { Database } from '../storage/database.ts'
import type { CollectedProvider } from './collect-evidence.ts'
import { createEvidenceCollector } from './evidence-collector.ts'
import { evidenceRoutes } from './evidence-routes.ts'
import { createProviderEvidenceStore } from './provider-evidence-store.ts'
import { createProviderTurnsStore } from './provider-turns-store.ts'
import type { ProvidersConfig } from './settings.ts'

/** A demonstration provider that the gateway itself started, with development roots. */
export type DemoEvidence = {
  readonly origin: string
  readonly kind: ProviderKind
  /** PEM file with the authority that signed the provider's certificate. */
  readonly caFile: string
  /** File with the policy that names the provider's roots. */
  readonly policyFile: string
}

type ProviderEvidenceRoom = {
  readonly routes: readonly Route[]
  /**
   * Seconds since the newest evidence, by provider. Without evidence, seconds since the start of
   * this process.
   */
  readonly ages: () => Promise<ReadonlyMap<string, number>>
}

/** Starts to collect the evidence of providers. */
export async function openProviders(
  { providers: config }: { readonly providers: ProvidersConfig },
  parts: Opening & {
    readonly database: Database
    readonly enclaves: Pick<EnclavePool, 'identities'>
    readonly anchoring: Pick<Anchoring, 'fetchRecentBlock'>
    readonly metrics: Pick<Metrics, 'countCollection' | 'countProviderKey'> | null
    readonly demo: DemoEvidence | null
    /** PEM of the authorities that are trusted for every host. Null: the system's authorities. */
    readonly providerCas: readonly string[] | null
    /** Unix milliseconds. */
    readonly now: () => number
  },
): Promise<ProviderEvidenceRoom> {
  const { database, enclaves, anchoring, metrics, now, log, onStarted } = parts
  const demo = parts.demo && (await readDemo(parts.demo))
  const evidence = createProviderEvidenceStore(database)
  const table = () => providersOf(enclaves)
  const collected = () => collectedOf(table(), config, demo)
  const collector = createEvidenceCollector({
    ...config,
    providers: collected,
    evidence,
    turns: createProviderTurnsStore(database),
    ca: parts.providerCas,
    fetchRecentBlock: anchoring.fetchRecentBlock,
    onCollected: (one) => metrics?.countCollection(one),
    onNewKey: (provider) => metrics?.countProviderKey(provider),
    now,
    log,
  })
  collector.start()
  onStarted(() => collector.stop())
  const startedAtMs = now()
  return {
    routes: evidenceRoutes({ table, collected, evidence }),
    async ages() {
      const ages = collected().map(async (provider) => {
        const newest = await evidence.findNewest(provider)
        return [provider.name, (now() - (newest?.fetchedAtMs ?? startedAtMs)) / 1000] as const
      })
      return new Map(await Promise.all(ages))
    },
  }
}

type ReadDemo = Pick<CollectedProvider, 'origin' | 'kind' | 'policy'>

async function readDemo({ origin, kind, policyFile }: DemoEvidence): Promise<ReadDemo> {
  const [policy = null] =
    (await readProviderPolicies(parsePolicy(await readFile(policyFile)))) ?? []
  return { origin, kind, policy }
}

/** Returns no origin twice. */
function collectedOf(
  table: readonly ProviderEntry[],
  { attested }: ProvidersConfig,
  demo: ReadDemo | null,
): readonly CollectedProvider[] {
  const found = new Map<string, CollectedProvider>()
  for (const { name, origin } of table) {
    if (found.has(origin) || !origin.startsWith('https://')) continue
    const configured = attested.get(name)
    if (demo?.origin === origin) found.set(origin, { name, build: null, ...demo })
    else if (configured !== undefined)
      found.set(origin, { name, origin, policy: null, ...configured })
  }
  return [...found.values()]
}
