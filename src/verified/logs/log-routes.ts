import { z } from 'zod'
import { createAdmission } from '../../api/admission.ts'
import { defineRoute, type Route } from '../../api/route.ts'
import { hexText, integerText } from '../../api/schemas.ts'
import { viewerOf } from '../records/viewer.ts'
import {
  bootStatement,
  consistencyProof,
  headList,
  inclusionProof,
  leafList,
  log,
  logList,
  logRecordList,
} from './log-replies.ts'
import type { Logs } from './logs.ts'

/**
 * Further reads without a key are refused with 503, so that they do not slow reads with a key and
 * reads of the history.
 */
export const PUBLIC_READS_MAX = 32

const LOG_LIMIT_DEFAULT = 100
const LOG_LIMIT_MAX = 1000

const LOG_RECORDS_LIMIT_MAX = 100

/** No log has so many leaves. */
const POSITION_MAX = 999_999_999_999_999

const address = hexText(20, 20, 'an address, 40 hex digits').transform((text) => `0x${text}`)
const position = integerText({ min: 0, max: POSITION_MAX })
/** Null stands for the newest committed size. */
const newest = position.nullable().default(null)
const limit = integerText({ min: 1, max: LOG_LIMIT_MAX }).default(LOG_LIMIT_DEFAULT)

/** Accepts upper and lower case, with or without 0x. Parsed: 0x, lower case. */
const notaryParameter = z.object({ notary: address })

const logsQuery = z.object({ limit, cursor: address.nullable().default(null) })

/** A page has heads with more leaves than `cursor`, or with fewer leaves if `order` is `desc`. */
const headsQuery = z.object({
  limit,
  cursor: newest,
  order: z.enum(['asc', 'desc']).default('asc'),
})

/** The service checks that `index` is below `size`. */
const inclusionQuery = z.object({ index: position, size: newest })

/** The service checks that `from` is at most `to`. */
const consistencyQuery = z.object({ from: position, to: newest })

/** `end` is not included. */
const leavesQuery = z.object({ start: position.default(0), end: newest })

const recordsQuery = z.object({
  start: position.default(0),
  limit: integerText({ min: 1, max: LOG_RECORDS_LIMIT_MAX }).default(LOG_RECORDS_LIMIT_MAX),
})

export function logRoutes(logs: Logs): readonly Route[] {
  const publicReads = createAdmission({ callsMax: PUBLIC_READS_MAX, bytesMax: 0 })
  const open = {
    method: 'GET',
    tag: 'Logs',
    scope: 'public',
    admission: publicReads,
  } as const
  const ofLog = {
    ...open,
    params: notaryParameter,
    errors: ['not_found', 'not_ready', 'overloaded'],
  } as const
  return [
    defineRoute({
      ...open,
      path: '/v1/log',
      summary: 'All logs',
      query: logsQuery,
      reply: { name: 'LogList', schema: logList },
      errors: ['not_ready', 'overloaded'],
      handler: ({ query }) => logs.list(query),
    }),
    defineRoute({
      ...ofLog,
      path: '/v1/log/:notary',
      summary: 'One log',
      reply: { name: 'Log', schema: log },
      handler: ({ params }) => logs.find(params.notary),
    }),
    defineRoute({
      ...ofLog,
      path: '/v1/log/:notary/boot-statement',
      summary: 'The heads of earlier logs that its enclave was shown',
      reply: { name: 'BootStatement', schema: bootStatement },
      handler: ({ params }) => logs.bootStatement(params.notary),
    }),
    defineRoute({
      ...ofLog,
      path: '/v1/log/:notary/heads',
      summary: 'Signed tree heads with their anchors, and attested states',
      query: headsQuery,
      reply: { name: 'HeadList', schema: headList },
      handler: ({ params, query }) => logs.heads(params.notary, query),
    }),
    defineRoute({
      ...ofLog,
      path: '/v1/log/:notary/inclusion',
      summary: 'Proof that a leaf is in the log',
      query: inclusionQuery,
      reply: { name: 'InclusionProof', schema: inclusionProof },
      handler: ({ params, query }) => logs.inclusion(params.notary, query),
    }),
    defineRoute({
      ...ofLog,
      path: '/v1/log/:notary/consistency',
      summary: 'Proof that the log only grew',
      query: consistencyQuery,
      reply: { name: 'ConsistencyProof', schema: consistencyProof },
      handler: ({ params, query }) => logs.consistency(params.notary, query),
    }),
    defineRoute({
      ...ofLog,
      path: '/v1/log/:notary/leaves',
      summary: 'Hashes of leaves',
      query: leavesQuery,
      reply: { name: 'LeafList', schema: leafList },
      handler: ({ params, query }) => logs.leaves(params.notary, query),
    }),
    defineRoute({
      method: 'GET',
      path: '/v1/log/:notary/records',
      tag: 'Logs',
      summary: "Records of leaves that the key's account may see",
      scope: 'inference',
      params: notaryParameter,
      query: recordsQuery,
      reply: { name: 'LogRecordList', schema: logRecordList },
      errors: ['not_found', 'not_ready', 'overloaded'],
      handler: ({ params, query, caller }) =>
        logs.records(params.notary, { ...query, viewer: viewerOf(caller()) }),
    }),
  ]
}
