import { z } from 'zod'
import { DIALECT_NAMES, type DialectName } from '#attestation/dialects/dialect-names.ts'
import { ERASURE_REASON_MAX, isErasureReason } from '#attestation/erasure.ts'
import { OUTCOMES } from '#attestation/receipt.ts'
import { MODEL_LENGTH_MAX } from '#enclave/protocol/chat-form.ts'
import { createAdmission, createSharedAdmission } from '../../api/admission.ts'
import { actorOf } from '../../api/authenticate.ts'
import { ApiError } from '../../api/errors.ts'
import { defineRoute, type NamedSchema, type Route } from '../../api/route.ts'
import {
  boundedText,
  described,
  faultIssue,
  hexText,
  integerText,
  searchedText,
  uuidText,
} from '../../api/schemas.ts'
import type { RecordEvidence } from './evidence.ts'
import type { History } from './history.ts'
import {
  anyRecord,
  dialectRecord,
  dialectRecordList,
  evidenceBundle,
  recordList,
} from './record-replies.ts'
import { viewerOf } from './viewer.ts'

/** Defined in parts 4 and 8 of the interface. */
const HISTORY_LIMIT_DEFAULT = 100
const HISTORY_LIMIT_MAX = 1000

const cursor = uuidText.transform((text) => text.toLowerCase())

const SEARCHED_TEXT_LENGTH_MAX = 200

const PROVIDER_LENGTH_MAX = 100

/** Unix seconds, up to the year 9999. */
const time = integerText({ min: 0, max: 253_402_300_799 }).nullable().default(null)

/** `cursor` is the id of the last record on the previous page (null: from the newest record). */
export const historyQuery = z.object({
  limit: integerText({ min: 1, max: HISTORY_LIMIT_MAX }).default(HISTORY_LIMIT_DEFAULT),
  cursor: cursor.nullable().default(null),
  filter: z.enum(['all', 'mine']).default('mine'),
  model: boundedText({ min: 1, max: MODEL_LENGTH_MAX }).nullable().default(null),
  provider: boundedText({ min: 1, max: PROVIDER_LENGTH_MAX }).nullable().default(null),
  outcome: z.enum(OUTCOMES).nullable().default(null),
  since: time,
  until: time,
  encrypted: z
    .enum(['true', 'false'])
    .transform((text) => text === 'true')
    .nullable()
    .default(null),
  q: searchedText({ min: 1, max: SEARCHED_TEXT_LENGTH_MAX }).nullable().default(null),
})

const recordsQuery = historyQuery.extend({
  dialect: z.enum(DIALECT_NAMES).nullable().default(null),
})

/**
 * Limits of simultaneous searches, in total and for one account. A search may read some megabytes.
 */
export const SEARCHES_MAX = 4
export const ACCOUNT_SEARCHES_MAX = 2

/**
 * Reads of logs have a separate limit, so reads of evidence and of logs cannot block each other.
 */
export const EVIDENCE_READS_MAX = 16

/** Accepts upper and lower case, with or without 0x. Parsed: lower case, without 0x. */
export const hashParameter = z.object({ hash: hexText(32, 32, '64 hex digits') })

/** Everyone who may see the record can read the reason. */
const erasureQuery = z.object({
  reason: described(
    z.string().check(({ value, issues }) => {
      if (isErasureReason(value)) return
      const expected = `1 to ${ERASURE_REASON_MAX} characters without control characters and format characters`
      issues.push(faultIssue([], 'value_error', `Input should be ${expected}`))
    }),
    () => ({ type: 'string', minLength: 1, maxLength: ERASURE_REASON_MAX }),
  ).default('asked for by its account'),
})

type HistoryParts = {
  readonly history: History
  readonly evidence: RecordEvidence
  readonly isEvidencePublic: boolean
}

/** A path of the history, and the form of its records. */
type HistoryView = {
  readonly path: string
  /** The only dialect of the list. Null: all dialects, and each record shows its dialect. */
  readonly dialect: DialectName | null
  readonly query: z.ZodType<
    z.output<typeof historyQuery> & { readonly dialect?: DialectName | null }
  >
  readonly list: NamedSchema
  readonly record: NamedSchema
}

const VIEWS: readonly HistoryView[] = [
  {
    path: '/v1/verified/chat/completions',
    dialect: 'chat',
    query: historyQuery,
    list: { name: 'StoredCompletionList', schema: recordList },
    record: { name: 'StoredCompletion', schema: anyRecord },
  },
  {
    path: '/v1/verified/records',
    dialect: null,
    query: recordsQuery,
    list: { name: 'RecordList', schema: dialectRecordList },
    record: { name: 'Record', schema: dialectRecord },
  },
]

const stored = { method: 'GET', tag: 'Verified chat', scope: 'inference' } as const

/**
 * Returns the routes for lists, for one completion by its hash, and for its evidence. If the
 * operator allows public evidence, any caller with the hash gets the evidence without the content.
 */
export function historyRoutes(parts: HistoryParts): readonly Route[] {
  const searches = createSharedAdmission({
    callsMax: SEARCHES_MAX,
    ownerCallsMax: ACCOUNT_SEARCHES_MAX,
  })
  return [
    ...VIEWS.flatMap((view) => [listRoute(parts, view, searches), ...recordRoutes(parts, view)]),
    publicEvidenceRoute(parts),
  ]
}

function listRoute(
  { history }: HistoryParts,
  { path, dialect, query: asked, list }: HistoryView,
  searches: ReturnType<typeof createSharedAdmission>,
): Route {
  return defineRoute({
    ...stored,
    path,
    summary: `List stored completions${dialect === null ? ' of all APIs' : ''}, newest first`,
    description:
      `\`model\`, \`provider\` (its name), \`outcome\`, \`since\` and \`until\` (Unix ` +
      `seconds)${dialect === null ? ', `dialect`' : ''} and \`encrypted\` filter the list; ` +
      '`q` finds your own completions whose question or answer contains the text, in upper or ' +
      'lower case. It never finds content that is encrypted by its caller, or erased; it always ' +
      'finds stored content that is unreadable. A page can have fewer completions than `limit`, ' +
      'or none: ask on until `cursor` is null.',
    query: asked,
    reply: list,
    errors: ['history_restricted', 'overloaded', 'content_key_missing'],
    async handler({ query, caller }) {
      const { q: text, limit, cursor, filter, encrypted: isEncrypted, ...filters } = query
      const viewer = viewerOf(caller())
      const slot = text === null ? null : searches.admit(viewer.accountId)
      try {
        return await history.list({
          viewer,
          limit,
          cursor,
          filter,
          text,
          showsDialect: dialect === null,
          filters: { ...filters, isEncrypted, dialect: dialect ?? filters.dialect ?? null },
        })
      } finally {
        slot?.release()
      }
    },
  })
}

function recordRoutes(
  { history, evidence }: HistoryParts,
  { path, dialect, record }: HistoryView,
): readonly Route[] {
  const of = { ...stored, path: `${path}/:hash`, params: hashParameter } as const
  return [
    defineRoute({
      ...of,
      summary: 'One stored completion by its hash',
      reply: record,
      errors: ['not_found'],
      handler: async ({ params, caller }) =>
        found(await history.find(params.hash, viewerOf(caller()), dialect === null)),
    }),
    defineRoute({
      ...of,
      method: 'DELETE',
      summary: 'Erase question and answer of one completion',
      description:
        "Request and response of the caller's own completions with this hash are erased " +
        'forever. The record stays, with its proofs and `erased`: ' +
        'its hashes are in a public log. Copies elsewhere are not erased: backups, and the ' +
        'answer that the caller received.',
      query: erasureQuery,
      reply: record,
      errors: ['not_found'],
      async handler({ params, query, caller, context }) {
        const order = { reason: query.reason, by: actorOf(context.state) }
        return found(await history.erase(params.hash, viewerOf(caller()), order, dialect === null))
      },
    }),
    defineRoute({
      ...of,
      path: `${path}/:hash/evidence`,
      summary: 'All the evidence for an offline check of one completion',
      reply: { name: 'EvidenceBundle', schema: evidenceBundle },
      errors: ['not_found'],
      handler: async ({ params, caller }) =>
        found(await evidence.find(params.hash, viewerOf(caller()))),
    }),
  ]
}

function publicEvidenceRoute({ evidence, isEvidencePublic }: HistoryParts): Route {
  return defineRoute({
    method: 'GET',
    tag: 'Logs',
    scope: 'public',
    path: '/v1/evidence/:hash',
    summary: 'The evidence of one completion, without request and response',
    params: hashParameter,
    reply: { name: 'EvidenceBundle', schema: evidenceBundle },
    errors: ['evidence_restricted', 'not_found', 'not_ready', 'overloaded'],
    admission: createAdmission({ callsMax: EVIDENCE_READS_MAX, bytesMax: 0 }),
    async handler({ params }) {
      if (isEvidencePublic) return found(await evidence.findPublic(params.hash))
      throw new ApiError(
        'evidence_restricted',
        'This service gives evidence only to accounts that may read the completion: ask with a ' +
          'key at /v1/verified/records/{hash}/evidence',
      )
    },
  })
}

function found(text: string | null): string {
  if (text === null) throw new ApiError('not_found', 'There is no completion with this hash')
  return text
}
