import { z } from 'zod'
import { ApiError } from '../api/errors.ts'
import { defineRoute, type Route } from '../api/route.ts'
import { credentialHeaders } from '../verified/provider-credential.ts'
import type { Models } from './models.ts'

const model = z.strictObject({
  id: z.string(),
  object: z.literal('model'),
  created: z.int(),
  owned_by: z.string(),
  name: z.string(),
  context_length: z.int().nullable(),
  max_completion_tokens: z.null(),
  pricing: z.looseObject({ prompt: z.string(), completion: z.string() }),
})

const listReply = {
  name: 'ModelList',
  schema: z.strictObject({ object: z.literal('list'), data: z.array(model) }),
}

/** An id may have slashes, as they are or in percents. */
const one = {
  description: 'The id may have slashes.',
  params: z.object({ model: z.string() }),
  reply: { name: 'Model', schema: model },
  errors: ['not_found'],
} as const

/**
 * `GET /v1/models`: what can be asked for, and `…/{model}`, as OpenAI's clients ask for one; `GET
 * /v1/verified/models`: what can be verified, with the same below it. None needs a key (interface, part 4).
 */
export function modelRoutes(models: Models): readonly Route[] {
  const open = { method: 'GET', tag: 'Service', scope: 'public' } as const
  const credentialOf = (headers: z.output<typeof credentialHeaders>) =>
    headers['fine-tune-authorization'] ?? null
  const found = (text: string | null): string => {
    if (text === null) throw new ApiError('not_found', 'There is no such model')
    return text
  }
  return [
    defineRoute({
      ...open,
      path: '/v1/models',
      summary: 'Models',
      reply: listReply,
      handler: () => models.list(),
    }),
    defineRoute({
      ...open,
      ...one,
      path: '/v1/models/*model',
      summary: 'One model',
      handler: async ({ params }) => found(await models.find(params.model)),
    }),
    defineRoute({
      ...open,
      path: '/v1/verified/models',
      summary: 'Models that can be verified now',
      description:
        "Of providers whose credential is there; with a Fine-Tune-Authorization of the caller's own, of every provider. A provider may serve more: ids of its patterns are listed when the operator names them, or when a completion of theirs was made.",
      headers: credentialHeaders,
      reply: listReply,
      handler: ({ headers }) => models.listVerified(credentialOf(headers)),
    }),
    defineRoute({
      ...open,
      ...one,
      path: '/v1/verified/models/*model',
      summary: 'One model that can be verified now',
      headers: credentialHeaders,
      handler: async ({ params, headers }) =>
        found(await models.findVerified(params.model, credentialOf(headers))),
    }),
  ]
}
