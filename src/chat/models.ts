import { chooseProvider } from '../../enclave/protocol/choose-provider.ts'
import type { ProviderEntry } from '../../enclave/protocol/messages.ts'
import type { EnclavePool } from '../enclaves/enclave-pool.ts'
import type { Dispatcher } from '../nodes/dispatch.ts'
import { hasCredential } from '../verified/provider-credentials.ts'
import type { ModelOutcomes } from './model-outcomes.ts'

/** What `owned_by` says of a model that contributed nodes serve. */
export const NODES_OWNER = 'nodes'

/** Models of nodes that are listed, those with the most nodes first: their names are their nodes' own, and reading needs no key. */
export const NODE_MODELS_LISTED_MAX = 1_000

/** A model as `GET /v1/models` lists it: the union of what OpenAI's clients and those of this interface read. */
export type ListedModel = {
  readonly id: string
  readonly object: 'model'
  /** Unix seconds. Nobody says when a model was made: it is when this gateway started. */
  readonly created: number
  /** `nodes`; `embeddings`, `images`: what it is for; or the name of a provider, whose models are served at the verified endpoint alone. */
  readonly owned_by: string
  readonly name: string
  /** Tokens; null when it is not known, as of models of strangers. */
  readonly context_length: number | null
  readonly max_completion_tokens: null
  /** Decimal texts. This gateway charges nothing. */
  readonly pricing: {
    readonly prompt: '0'
    readonly completion: '0'
    readonly image: '0'
    readonly request: '0'
  }
}

/** A model of a service that the operator configured. */
export type UpstreamModel = {
  readonly id: string
  readonly owner: 'embeddings' | 'images'
  readonly contextLength: number | null
}

/** The models that can be asked for. */
export type Models = {
  /** JSON text of the list. Without the providers' models while the enclave is away. */
  list(): Promise<string>
  /** JSON text of one model of that list; null when it is not there. */
  find(id: string): Promise<string | null>
  /**
   * JSON text of the list of those that can be verified now: that a provider serves whose
   * credential is there, or of every provider with a caller's own. Empty while the enclave is away.
   */
  listVerified(callerCredential: string | null): Promise<string>
  /** JSON text of one model of that list; null when it is not there. */
  findVerified(id: string, callerCredential: string | null): Promise<string | null>
}

/**
 * Models that nodes serve now, and models of providers: the ids of the enclave's provider table that are no patterns, and those of
 * `providerModels` that the table has a provider for. Patterns (`gpt-*`) are no ids, and are not listed: what a provider offers under one is for the
 * operator to say. An id that both have is listed once, as the nodes'.
 */
export function createModels(options: {
  readonly dispatcher: Pick<Dispatcher, 'models'>
  readonly enclaves: Pick<EnclavePool, 'identities'>
  /** Model ids, by configuration. */
  readonly providerModels: readonly string[]
  readonly listUpstream: () => readonly UpstreamModel[]
  /** The operator's credentials, by provider name. */
  readonly credentials: ReadonlyMap<string, string>
  /** What became of calls with these. */
  readonly outcomes: Pick<ModelOutcomes, 'served' | 'isMissing'>
  /** When the gateway started, Unix seconds. */
  readonly startedAt: number
}): Models {
  const { dispatcher, enclaves, providerModels, listUpstream, credentials, outcomes, startedAt } = options
  const tableOf = () => enclaves.identities().flatMap(({ boot_configuration: boot }) => boot.providers)

  const listVerifiable = (callerCredential: string | null): readonly ListedModel[] => {
    const table = tableOf()
    const owners = new Map(offersOf(table, [...providerModels, ...outcomes.served()]))
    return [...owners]
      .filter(([model]) => isVerifiable(model, table, callerCredential))
      .map(([id, owner]) => listedModel({ id, owner, contextLength: null, startedAt }))
  }

  /**
   * A provider said to the operator's credential that it does not have a model: that is nothing to
   * a caller's own.
   */
  function isVerifiable(
    model: string,
    table: readonly ProviderEntry[],
    callerCredential: string | null,
  ): boolean {
    const isCallable = hasCredential({ model, callerCredential }, table, credentials)
    return isCallable && (callerCredential !== null || !outcomes.isMissing(model))
  }

  const listAll = (): readonly ListedModel[] => {
    const table = tableOf()
    const owners = new Map(mostServed(dispatcher.models()).map(({ model }) => [model, NODES_OWNER]))
    for (const [id, owner] of offersOf(table, providerModels)) if (!owners.has(id)) owners.set(id, owner)
    const others = listUpstream().filter(({ id }) => !owners.has(id))
    return [
      ...[...owners].map(([id, owner]) => listedModel({ id, owner, contextLength: null, startedAt })),
      ...others.map((model) => listedModel({ ...model, startedAt })),
    ]
  }
  return {
    list: async () => JSON.stringify({ object: 'list', data: listAll() }),
    async find(id) {
      const found = listAll().find((model) => model.id === id)
      return found === undefined ? null : JSON.stringify(found)
    },
    listVerified: async (callerCredential) =>
      JSON.stringify({ object: 'list', data: listVerifiable(callerCredential) }),
    async findVerified(id, callerCredential) {
      const found = listVerifiable(callerCredential).find((model) => model.id === id)
      return found === undefined ? null : JSON.stringify(found)
    },
  }
}

/** At most NODE_MODELS_LISTED_MAX of nodes' models: those with the most nodes. */
export function mostServed(models: ReturnType<Dispatcher['models']>): ReturnType<Dispatcher['models']> {
  if (models.length <= NODE_MODELS_LISTED_MAX) return models
  return models.toSorted((left, right) => right.nodes - left.nodes).slice(0, NODE_MODELS_LISTED_MAX)
}

function offersOf(
  table: readonly ProviderEntry[],
  configured: readonly string[],
): readonly (readonly [string, string])[] {
  const ids = table.flatMap(({ models }) => models.filter((pattern) => !pattern.includes('*')))
  return [...ids, ...configured].flatMap((id) => {
    const provider = chooseProvider(table, id)
    return provider === null ? [] : [[id, provider.name] as const]
  })
}

function listedModel({
  id,
  owner,
  contextLength,
  startedAt,
}: {
  readonly id: string
  readonly owner: string
  readonly contextLength: number | null
  readonly startedAt: number
}): ListedModel {
  return {
    id,
    object: 'model',
    created: startedAt,
    owned_by: owner,
    name: id,
    context_length: contextLength,
    max_completion_tokens: null,
    pricing: { prompt: '0', completion: '0', image: '0', request: '0' },
  }
}
