import { setImmediate as nextTurn } from 'node:timers/promises'
import { chooseProvider } from '#enclave/protocol/choose-provider.ts'
import type { ProviderEntry } from '#enclave/protocol/enclave-api.ts'
import type { EnclavePool } from '../../enclaves/enclave-pool.ts'
import { providersOf } from '../../enclaves/provider-table.ts'
import type { Logger } from '../../observability/logger.ts'
import { type BackOffBounds, backOffMs } from '../../runtime/back-off.ts'
import { createLoop } from '../../runtime/loop.ts'
import { createEndpoint, type Endpoint, EndpointError } from '../../upstream/endpoint.ts'

/** How long a provider's list is used before the gateway asks again. */
const REFRESH_MS = 3_600_000
/** Pauses after a provider sent no list. */
const RETRY: BackOffBounds = { minMs: 10_000, maxMs: REFRESH_MS }
/** How often the table is checked for new providers and credentials. */
const LOOK_MS = 1_000
/** Time limit for a whole answer. */
const TIMEOUT_MS = 10_000
/** The longest known list, OpenRouter's, is about 1 MB. */
const ANSWER_BYTES_MAX = 8 * 1024 * 1024
/** Limit per provider, because the public list is built again for each reader. */
export const LISTED_MAX = 500
const MODEL_ID = /^[\x21-\x7e]{1,256}$/

export type ListOutcome = 'listed' | EndpointError['code']

/** The models that each provider lists. */
export type ProviderLists = {
  /** Only ids that match the provider table, at most LISTED_MAX for each provider. */
  listed(): readonly string[]
  stop(): Promise<void>
}

type ListedProvider = {
  readonly credential: string | null
  readonly ids: readonly string[]
  readonly failures: number
  /** When the provider is asked next, monotonic milliseconds. */
  readonly dueMs: number
}

/**
 * Asks providers for their models in the background (`GET …/models`, as OpenAI defines it), with
 * the operator's credential. If a provider sends no list, its previous list stays, and a metric and
 * a debug line report this. A provider chooses the ids. They must match the table, so a provider
 * cannot list another provider's models.
 */
export function askProviderLists({
  enclaves,
  credentials,
  providerCas: ca,
  onAsked,
  now,
  log,
}: {
  readonly enclaves: Pick<EnclavePool, 'identities'>
  /** The operator's credentials, by provider name. */
  readonly credentials: () => ReadonlyMap<string, string>
  /** PEM of the authorities that are trusted for providers. Null: the system's authorities. */
  readonly providerCas: readonly string[] | null
  readonly onAsked: (asked: { readonly provider: string; readonly outcome: ListOutcome }) => void
  /** Monotonic milliseconds. */
  readonly now: () => number
  readonly log: Logger
}): ProviderLists {
  /** The keys are the URLs that the lists come from. */
  const lists = new Map<string, ListedProvider>()

  async function ask(
    [url, entry]: readonly [string, ProviderEntry],
    credential: string | null,
    signal: AbortSignal,
  ): Promise<ListedProvider> {
    const { ids = [], failures = 0 } = lists.get(url) ?? {}
    const endpoint = createEndpoint({
      url,
      ca,
      headers: credential === null ? NO_HEADERS : { authorization: `Bearer ${credential}` },
      timeoutMs: TIMEOUT_MS,
      answerBytesMax: ANSWER_BYTES_MAX,
    })
    try {
      const offered = await fetchIds(endpoint, signal)
      const table = providersOf(enclaves)
      const served = await matchIds(offered, (id) => chooseProvider(table, id)?.name === entry.name)
      onAsked({ provider: entry.name, outcome: 'listed' })
      return { credential, ids: served, failures: 0, dueMs: now() + REFRESH_MS }
    } catch (error) {
      if (!signal.aborted) {
        const outcome = error instanceof EndpointError ? error.code : 'bad_answer'
        onAsked({ provider: entry.name, outcome })
        log.debug({ provider: entry.name, code: outcome }, 'provider gave no list of its models')
      }
      const pauseMs = backOffMs(failures + 1, RETRY, { jitter: 'half' })
      return { credential, ids, failures: failures + 1, dueMs: now() + pauseMs }
    } finally {
      await endpoint.close()
    }
  }

  const loop = createLoop(async (signal) => {
    const own = credentials()
    const asked = [...listUrls(providersOf(enclaves))].filter(
      ([, { name, origin }]) => own.has(name) || origin.startsWith('http://'),
    )
    const urls = new Set(asked.map(([url]) => url))
    for (const url of lists.keys()) if (!urls.has(url)) lists.delete(url)
    await Promise.all(
      asked.map(async (provider) => {
        const [url, { name }] = provider
        const credential = own.get(name) ?? null
        const known = lists.get(url)
        if (known?.credential === credential && known.dueMs > now()) return
        lists.set(url, await ask(provider, credential, signal))
      }),
    )
    return LOOK_MS
  })
  loop.start()

  return { listed: () => [...lists.values()].flatMap(({ ids }) => ids), stop: loop.stop }
}

const NO_HEADERS: Readonly<Record<string, string>> = {}

/** Returns entries by base URL: the URL of the chat endpoint without `/chat/completions`. */
function listUrls(table: readonly ProviderEntry[]): ReadonlyMap<string, ProviderEntry> {
  return new Map(
    table.flatMap((entry) => {
      const [, base] = /^(.*)\/chat\/completions$/.exec(entry.path) ?? []
      return base === undefined ? [] : [[`${entry.origin}${base}`, entry] as const]
    }),
  )
}

/** Returns the ids unchecked. They may be any JSON values. Throws EndpointError. */
async function fetchIds(endpoint: Endpoint, signal: AbortSignal): Promise<readonly unknown[]> {
  const answer = await endpoint.ask({
    method: 'GET',
    path: '/models',
    signal,
    reserve: () => undefined,
  })
  const data: unknown = (answer as { readonly data?: unknown } | null)?.data
  if (!Array.isArray(data)) throw new EndpointError('bad_answer', 'expected a list of models')
  return data.map((model: { readonly id?: unknown } | null) => model?.id)
}

/** After this many ids, the loop pauses, so that other work can run. */
const IDS_AT_ONCE = 1_000

/**
 * Returns the ids that the provider serves, sorted and without duplicates. Google's prefix
 * `models/` is removed. Fine-tuned models are left out: their names show their owner, and the list
 * is public.
 */
async function matchIds(
  offered: readonly unknown[],
  isServed: (id: string) => boolean,
): Promise<readonly string[]> {
  const ids = new Set<string>()
  for (const [index, id] of offered.entries()) {
    if (index % IDS_AT_ONCE === 0) await nextTurn()
    if (typeof id !== 'string' || !MODEL_ID.test(id) || id.startsWith('ft:')) continue
    const served = [id, id.replace(/^models\//, '')].find(isServed)
    if (served !== undefined) ids.add(served)
  }
  return [...ids].toSorted().slice(0, LISTED_MAX)
}
