import { z } from 'zod'
import { chooseProvider } from '../../enclave/protocol/choose-provider.ts'
import type { ProviderEntry } from '../../enclave/protocol/messages.ts'
import { ApiError } from '../api/errors.ts'
import { defineRoute, type Route } from '../api/route.ts'
import type { EnclavePool } from '../enclaves/enclave-pool.ts'
import type { Dispatcher } from '../nodes/runs/dispatch.ts'

/** What `owned_by` says of a model that contributed nodes serve. */
const NODES_OWNER = 'nodes'

/**
 * Models of nodes that are listed, those with the most nodes first: their names are their nodes'
 * own, and reading needs no key.
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

/** A list of models, as OpenAI's clients read it. */
export const listedModels = z.strictObject({
  object: z.literal('list'),
  data: z.array(listedModel),
})

/**
 * A model as a list has it: the union of what OpenAI's clients and those of this interface read.
 * `owned_by` is `nodes`; `embeddings` or `images`, for what the model is for; or the name of a
 * provider, whose models are served at the verified endpoint alone. Lengths are in tokens. This
 * gateway charges nothing.
 */
export type ListedModel = z.output<typeof listedModel>

/** A model of a service that the operator configured. */
export type UpstreamModel = {
  readonly id: string
  readonly owner: 'embeddings' | 'images'
  readonly contextLength: number | null
}

/**
 * Gives what lists the models that can be asked for now: those that nodes serve, and those of
 * providers: the ids of the enclave's provider table that are no patterns, and those of
 * `providerModels` that the table has a provider for. Patterns (`gpt-*`) are no ids, and are not
 * listed: what a provider offers under one is for the operator to say. An id that both have is
 * listed once, as the nodes'. The providers' models are missing while the enclave is away.
 */
export function createModels({
  dispatcher,
  enclaves,
  providerModels,
  listUpstream,
  startedAt,
}: {
  readonly dispatcher: Pick<Dispatcher, 'models'>
  readonly enclaves: Pick<EnclavePool, 'identities'>
  /** Model ids, by configuration. */
  readonly providerModels: readonly string[]
  readonly listUpstream: () => readonly UpstreamModel[]
  /** When the gateway started, Unix seconds. */
  readonly startedAt: number
}): () => readonly ListedModel[] {
  return () => {
    const owners = new Map(mostServed(dispatcher.models()).map(({ model }) => [model, NODES_OWNER]))
    for (const [id, owner] of offersOf(providersOf(enclaves), providerModels))
      if (!owners.has(id)) owners.set(id, owner)
    const others = listUpstream().filter(({ id }) => !owners.has(id))
    return [
      ...[...owners].map(([id, owner]) => describeListedModel({ id, owner, startedAt })),
      ...others.map((model) => describeListedModel({ ...model, startedAt })),
    ]
  }
}

/** At most NODE_MODELS_LISTED_MAX of nodes' models: those with the most nodes. */
export function mostServed(
  models: ReturnType<Dispatcher['models']>,
): ReturnType<Dispatcher['models']> {
  if (models.length <= NODE_MODELS_LISTED_MAX) return models
  return models.toSorted((left, right) => right.nodes - left.nodes).slice(0, NODE_MODELS_LISTED_MAX)
}

/** The provider tables of all enclaves in use, together. */
export function providersOf(enclaves: Pick<EnclavePool, 'identities'>): readonly ProviderEntry[] {
  return enclaves.identities().flatMap(({ boot_configuration: boot }) => boot.providers)
}

/**
 * Ids that providers serve, each with its provider's name: those that the table names in full, and
 * those of `others` that it has one for.
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
 * A model as it is listed. When it was made is not known: `startedAt`, when this gateway started,
 * stands for that, Unix seconds.
 */
export function describeListedModel({
  id,
  owner,
  contextLength = null,
  startedAt,
}: {
  readonly id: string
  readonly owner: string
  /** Tokens; null when it is not known, as of models of strangers. */
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

/** `GET /v1/models`: what can be asked for, and `…/{model}`, as OpenAI's clients ask for one. */
export function modelRoutes(list: () => readonly ListedModel[]): readonly Route[] {
  return modelListRoutes({
    path: '/v1/models',
    summaries: ['Models', 'One model'],
    reply: { name: 'ModelList', schema: listedModels },
    list: () => ({ data: list() }),
  })
}

/**
 * Routes of a list of models, and of one of them below it. None needs a key (interface, part 4).
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
      // As they are, or in percents.
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
