import { z } from 'zod'
import { actDone, defineAct } from '../../accounts/acts.ts'
import { ApiError } from '../../api/errors.ts'
import type { Database } from '../../storage/database.ts'
import { createContentOperations } from './reencryption-store.ts'

type Place = { readonly database: Pick<Database, 'queries' | 'content'> }

const path = '/v1/admin/content-keys'

/** Only the operator may make these acts. The keys encrypt stored requests and answers. */
export const contentActs = {
  keys: defineAct({
    method: 'GET',
    path,
    summary: 'The keys that content was encrypted under',
    scope: 'operator',
    reply: {
      schema: z.object({
        keys: z.array(
          z.object({
            id: z.string(),
            first_used_at: z.int(),
            retired_at: z.int().nullable(),
            is_known: z.boolean(),
            is_newest: z.boolean(),
          }),
        ),
      }),
    },
    run: (_, { database }: Place) => createContentOperations(database).keys(),
    trail: 'changes nothing',
    answer: (keys) => ({ keys: [...keys] }),
  }),
  encrypt: defineAct({
    method: 'POST',
    path,
    summary: 'Encrypt a batch of content with the newest key',
    scope: 'operator',
    isOutside: true,
    body: { schema: z.object({ after: z.int().min(0) }) },
    reply: {
      schema: z.object({ next: z.int().nullable(), encrypted: z.int(), unreadable: z.int() }),
    },
    errors: ['content_key_missing'],
    run: ({ after }, { database }: Place) => createContentOperations(database).encrypt(after),
    // The caller repeats this act until all content is encrypted. Only the act from position 0 is
    // recorded.
    trail({ after }, result) {
      const outcome = result === 'no_key' ? result : 'begun'
      return after === 0 ? [{ kind: 'content.encrypt', target: 'all', outcome }] : []
    },
    answer(result) {
      if (result === 'no_key') throw noKey()
      return result
    },
  }),
  retire: defineAct({
    method: 'PUT',
    path,
    summary: 'Record that nothing is left under another key than the newest',
    scope: 'operator',
    isOutside: true,
    reply: actDone,
    errors: ['content_key_missing'],
    run: (_, { database }: Place) => createContentOperations(database).retire(),
    trail: (_, outcome) => [{ kind: 'content.retire', target: 'all', outcome }],
    answer(outcome) {
      if (outcome === 'no_key') throw noKey()
      return { outcome: 'done' as const }
    },
  }),
}

function noKey(): ApiError {
  return new ApiError('content_key_missing', 'This gateway has no key for stored content')
}
