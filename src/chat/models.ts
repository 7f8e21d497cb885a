import { z } from 'zod'
import { chooseProvider } from '#enclave/protocol/choose-provider.ts'
import type { ProviderEntry } from '#enclave/protocol/enclave-api.ts'
import { ApiError } from '../api/errors.ts'
import { ANTHROPIC_FACE, type FaceChoice, faceByVersion, OPENAI_FACE } from '../api/faces.ts'
import { defineRoute, type NamedSchema, type Route } from '../api/route.ts'
import type { EnclavePool } from '../enclaves/enclave-pool.ts'
import { providersOf } from '../enclaves/provider-table.ts'
import type { Dispatcher } from '../nodes/runs/dispatch.ts'

/** `owned_by` of a model that contributed nodes serve. */
const NODES_OWNER = 'nodes'

/** Limited, because nodes can offer any names. The models with the most nodes come first. */
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

export const listedModels = z.strictObject({
  object: z.literal('list'),
  data: z.array(listedModel),
})

const anthropicModel = z.strictObject({
  type: z.literal('model'),
  id: z.string(),
  display_name: z.string(),
  created_at: z.iso.datetime(),
})

const anthropicModels = z.strictObject({
  data: z.array(anthropicModel),
  has_more: z.literal(false),
  first_id: z.string().nullable(),
  last_id: z.string().nullable(),
})

/** For routes that list models only in Anthropic's form. */
export const ANTHROPIC_MODELS = {
  face: ANTHROPIC_FACE,
  reply: { name: 'AnthropicModelList', schema: anthropicModels },
  replyOfOne: { name: 'AnthropicModel', schema: anthropicModel },
} as const

/**
 * Has members for OpenAI's clients and for this interface's clients. `owned_by` is `nodes`,
 * `embeddings`, `images` or a provider's name. Only the verified endpoint serves a provider's
 * models. Lengths are in tokens. Prices are 0, because this gateway charges nothing.
 */
export type ListedModel = z.output<typeof listedModel>

/** Services that the operator configured. */
type UpstreamServices = {
  readonly embeddings: {
    readonly models: readonly { readonly id: string; readonly inputTokensMax: number }[]
  }
  /** Read for each request, because the list includes models of nodes. */
  readonly images: { models(): readonly string[] }
}

/**
 * Lists the available models: the models of nodes, the ids in the enclave's provider table, and the
 * ids of `providerModels` whose provider is in the table. Models of a pattern (`gpt-*`) are listed
 * only if `providerModels` has them. An id that both nodes and a provider serve is listed once, as
 * a model of nodes. While the enclave is unreachable, the providers' models are missing.
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
  /** Ids that the operator configured. */
  readonly providerModels: readonly string[]
  readonly upstream: UpstreamServices
  /** Unix seconds. */
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

export function mostServed(
  models: ReturnType<Dispatcher['models']>,
): ReturnType<Dispatcher['models']> {
  if (models.length <= NODE_MODELS_LISTED_MAX) return models
  return models.toSorted((left, right) => right.nodes - left.nodes).slice(0, NODE_MODELS_LISTED_MAX)
}

/**
 * Returns pairs of model id and provider: for the full ids in the table, and for the ids of
 * `others` that match a provider.
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

/** The list shows `startedAt` (Unix seconds), because the model's own time is not known. */
export function describeListedModel({
  id,
  owner,
  contextLength = null,
  startedAt,
}: {
  readonly id: string
  readonly owner: string
  /** Tokens. Null if not known, for example for models of contributed nodes. */
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

/** OpenAI's paths. */
export function modelRoutes(list: () => readonly ListedModel[]): readonly Route[] {
  return modelListRoutes({
    path: '/v1/models',
    summaries: ['Models', 'One model'],
    description: 'With the header `anthropic-version`, the answer has the form of Anthropic.',
    face: faceByVersion,
    reply: { name: 'ModelList', schema: listedModels },
    list: () => ({ data: list() }),
  })
}

/**
 * Returns the routes for a list of models and for one model. They need no key (interface, part 4).
 */
export function modelListRoutes<Headers>({
  path,
  face = OPENAI_FACE,
  summaries: [ofList, ofOne],
  description,
  headers,
  reply,
  replyOfOne = { name: 'Model', schema: listedModel },
  list,
}: {
  readonly path: string
  readonly face?: FaceChoice
  readonly summaries: readonly [ofList: string, ofOne: string]
  readonly description?: string
  readonly headers?: z.ZodType<Headers>
  readonly reply: NamedSchema
  readonly replyOfOne?: NamedSchema
  readonly list: (headers: Headers) => { readonly data: readonly ListedModel[] }
}): readonly Route[] {
  const open = { method: 'GET', tag: 'Service', scope: 'public', face } as const
  const ofCaller = headers === undefined ? {} : { headers }
  return [
    defineRoute({
      ...open,
      ...ofCaller,
      path,
      summary: ofList,
      ...(description === undefined ? {} : { description }),
      reply,
      handler: async (call) => call.context.state.face.modelList(list(call.headers)),
    }),
    defineRoute({
      ...open,
      ...ofCaller,
      path: `${path}/*model`,
      summary: ofOne,
      description: 'The id may contain slashes.',
      // Slashes in an id may be written directly or percent-encoded.
      params: z.object({ model: z.string() }),
      reply: replyOfOne,
      errors: ['not_found'],
      handler: async (call) => {
        const found = list(call.headers).data.find(({ id }) => id === call.params.model)
        if (found === undefined) throw new ApiError('not_found', 'There is no such model')
        return call.context.state.face.model(found)
      },
    }),
  ]
}
