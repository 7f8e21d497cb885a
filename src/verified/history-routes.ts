import { z } from 'zod'
import { ApiError } from '../api/errors.ts'
import { defineRoute, type Route } from '../api/route.ts'
import { hexText, integerText, patternText } from '../api/schemas.ts'
import type { Evidence } from './evidence.ts'
import type { History } from './history.ts'
import { evidenceBundle, recordList, storedRecord } from './record-replies.ts'
import { viewerOf } from './viewer.ts'

/** Records of a page when the query does not say, and at most (interface, parts 4 and 8). */
const HISTORY_LIMIT_DEFAULT = 100
const HISTORY_LIMIT_MAX = 1000

const cursor = patternText(
  /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/i,
  'uuid_parsing',
  'a valid UUID',
).transform((text) => text.toLowerCase())

/**
 * A page of the history; `cursor` is the id of the last record of the page before, null for the
 * newest.
 */
export const historyQuery = z.object({
  limit: integerText({ min: 1, max: HISTORY_LIMIT_MAX }).default(HISTORY_LIMIT_DEFAULT),
  cursor: cursor.nullable().default(null),
  filter: z.enum(['all', 'mine']).default('mine'),
})

/** Hash of a completion: of either case, with or without 0x → lower case, without. */
export const hashParameter = z.object({ hash: hexText(32, 32, '64 hex digits') })

/**
 * The stored completions: the list, one by its hash, and all that a check of it needs, in one file.
 */
export function historyRoutes({
  history,
  evidence,
}: {
  readonly history: History
  readonly evidence: Evidence
}): readonly Route[] {
  const stored = { method: 'GET', tag: 'Verified chat', scope: 'inference' } as const
  const found = (text: string | null): string => {
    if (text === null) throw new ApiError('not_found', 'There is no completion with this hash')
    return text
  }
  return [
    defineRoute({
      ...stored,
      path: '/v1/verified/chat/completions',
      summary: 'List stored completions, newest first',
      query: historyQuery,
      reply: { name: 'StoredCompletionList', schema: recordList },
      errors: ['history_restricted'],
      handler: async ({ query, caller }) => history.list({ viewer: viewerOf(caller()), ...query }),
    }),
    defineRoute({
      ...stored,
      path: '/v1/verified/chat/completions/:hash',
      summary: 'One stored completion by its hash',
      params: hashParameter,
      reply: { name: 'StoredCompletion', schema: storedRecord },
      errors: ['not_found'],
      handler: async ({ params, caller }) =>
        found(await history.find(params.hash, viewerOf(caller()))),
    }),
    defineRoute({
      ...stored,
      path: '/v1/verified/chat/completions/:hash/evidence',
      summary: 'Everything that an offline check of one completion needs',
      params: hashParameter,
      reply: { name: 'EvidenceBundle', schema: evidenceBundle },
      errors: ['not_found'],
      handler: async ({ params, caller }) =>
        found(await evidence.find(params.hash, viewerOf(caller()))),
    }),
  ]
}
