import { z } from 'zod'
import { chooseProvider } from '../../enclave/protocol/choose-provider.ts'
import type { ProviderEntry } from '../../enclave/protocol/messages.ts'
import { ApiError } from '../api/errors.ts'
import { defineRoute, type Route } from '../api/route.ts'
import type { EnclavePool } from '../enclaves/enclave-pool.ts'
import type { Dispatcher } from '../nodes/runs/dispatch.ts'

/** Value of `owned_by` for a model that contributed nodes serve. */
const NODES_OWNER = 'nodes'

/**
 * The maximum number of models of nodes in the list. The models with the most nodes come first. A
 * limit is needed because nodes choose the names, and reading the list needs no key.
 */
export const NODE_MODELS_LISTED_MAX = 1_000

const listedModel = z.strictObject({
  id: z.string(),
  object: z.literal('model'),
  created: z.int(),
  owned_by: z.string(),
  name: z.string(),
  context_length: z.int().nullable(),
  max_completion_tokens: z.null(),
  pricing: z.looseObject({ prompt: z.string(), completion: z.string() }),
})

/** A list of models, in the form of OpenAI's clients. */
export const listedModels = z.strictObject({
  object: z.literal('list'),
  data: z.array(listedModel),
})

/**
 * A model in a list, with all members that OpenAI's clients and this interface's clients read.
 * `owned_by` is `nodes` for a model of nodes. It is `embeddings` or `images` for a model with this
 * purpose. Otherwise it is the name of a provider, whose models are served only at the verified
 * endpoint. Lengths are in tokens. This gateway charges nothing.
 */
export type ListedModel = z.output<typeof listedModel>

/** The services that the operator configured, and their models. */
type UpstreamServices = {
  readonly embeddings: {
    readonly models: readonly { readonly id: string; readonly inputTokensMax: number }[]
  }
  /** Nodes serve some of these models, so the list is read again for each request. */
  readonly images: { models(): readonly string[] }
}

/**
 * Returns a function that lists the available models. These are the models of nodes, the ids in the
 * enclave's provider table, and the ids of `providerModels` whose provider is in the table.
 * Patterns (`gpt-*`) are not ids and are not listed. The operator must name the models of a
 * pattern. If nodes and a provider have the same id, it is listed once, as a model of nodes. While
 * the enclave is unreachable, the providers' models are missing.
 */
export function createModels({
  dispatcher,
  enclaves,
  providerModels,
  upstream,
  startedAt,
}: {
  readonly dispatcher: Pick<Dispatcher, 'models'>
  readonly enclaves: Pick<EnclavePool, 'identities'>
  /** The model ids that the configuration lists for providers. */
  readonly providerModels: readonly string[]
  readonly upstream: UpstreamServices
  /** When the gateway started, Unix seconds. */
  readonly startedAt: number
}): () => readonly ListedModel[] {
  return () => {
    const owners = new Map(mostServed(dispatcher.models()).map(({ model }) => [model, NODES_OWNER]))
    for (const [id, owner] of offersOf(providersOf(enclaves), providerModels))
      if (!owners.has(id)) owners.set(id, owner)
    const others = listUpstream(upstream).filter(({ id }) => !owners.has(id))
    return [
      ...[...owners].map(([id, owner]) => describeListedModel({ id, owner, startedAt })),
      ...others.map((model) => describeListedModel({ ...model, startedAt })),
    ]
  }
}

function listUpstream({ embeddings, images }: UpstreamServices) {
  return [
    ...embeddings.models.map(({ id, inputTokensMax }) => ({
      id,
      owner: 'embeddings',
      contextLength: inputTokensMax,
    })),
    ...images.models().map((id) => ({ id, owner: 'images', contextLength: null })),
  ]
}

/**
 * Returns at most NODE_MODELS_LISTED_MAX models of nodes, starting with the models that have the
 * most nodes.
 */
export function mostServed(
  models: ReturnType<Dispatcher['models']>,
): ReturnType<Dispatcher['models']> {
  if (models.length <= NODE_MODELS_LISTED_MAX) return models
  return models.toSorted((left, right) => right.nodes - left.nodes).slice(0, NODE_MODELS_LISTED_MAX)
}

/** Returns the provider tables of all enclaves in use as one table. */
export function providersOf(enclaves: Pick<EnclavePool, 'identities'>): readonly ProviderEntry[] {
  return enclaves.identities().flatMap(({ boot_configuration: boot }) => boot.providers)
}

/**
 * Returns the model ids of providers, each with the name of its provider. These are the full ids in
 * the table, and the ids of `others` that match a provider.
 */
export function offersOf(
  table: readonly ProviderEntry[],
  others: readonly string[],
): readonly (readonly [string, string])[] {
  const ids = table.flatMap(({ models }) => models.filter((pattern) => !pattern.includes('*')))
  return [...ids, ...others].flatMap((id) => {
    const provider = chooseProvider(table, id)
    return provider === null ? [] : [[id, provider.name] as const]
  })
}

/**
 * Returns a model in the form of the list. The time when the model was made is not known. So the
 * list shows `startedAt`: when this gateway started, Unix seconds.
 */
export function describeListedModel({
  id,
  owner,
  contextLength = null,
  startedAt,
}: {
  readonly id: string
  readonly owner: string
  /** Tokens. Null if the number is not known, for example for models of contributed nodes. */
  readonly contextLength?: number | null
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

/**
 * `GET /v1/models` lists the available models. `…/{model}` returns one of them. OpenAI's clients
 * use these two paths.
 */
export function modelRoutes(list: () => readonly ListedModel[]): readonly Route[] {
  return modelListRoutes({
    path: '/v1/models',
    summaries: ['Models', 'One model'],
    reply: { name: 'ModelList', schema: listedModels },
    list: () => ({ data: list() }),
  })
}

/**
 * Routes for a list of models, and for each model at a path below the list. They need no key
 * (interface, part 4).
 */
export function modelListRoutes<Headers, List extends { readonly data: readonly ListedModel[] }>({
  path,
  summaries: [ofList, ofOne],
  description,
  headers,
  reply,
  list,
}: {
  readonly path: string
  readonly summaries: readonly [ofList: string, ofOne: string]
  readonly description?: string
  readonly headers?: z.ZodType<Headers>
  readonly reply: {
    readonly name: string
    readonly schema: z.ZodType<List & { readonly object: 'list' }>
  }
  readonly list: (headers: Headers) => List
}): readonly Route[] {
  const open = { method: 'GET', tag: 'Service', scope: 'public' } as const
  const ofCaller = headers === undefined ? {} : { headers }
  return [
    defineRoute({
      ...open,
      ...ofCaller,
      path,
      summary: ofList,
      ...(description === undefined ? {} : { description }),
      reply,
      handler: async (call) => ({ object: 'list', ...list(call.headers) }),
    }),
    defineRoute({
      ...open,
      ...ofCaller,
      path: `${path}/*model`,
      summary: ofOne,
      description: 'The id may contain slashes.',
      // Slashes in an id may be written directly or percent-encoded.
      params: z.object({ model: z.string() }),
      reply: { name: 'Model', schema: listedModel },
      errors: ['not_found'],
      handler: async (call) => {
        const found = list(call.headers).data.find(({ id }) => id === call.params.model)
        if (found === undefined) throw new ApiError('not_found', 'There is no such model')
        return found
      },
    }),
  ]
}
