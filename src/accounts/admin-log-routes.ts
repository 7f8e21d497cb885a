import { z } from 'zod'
import { ADMIN_ROUTE } from '../api/admin-calls.ts'
import { adminAct } from '../api/control-operations.ts'
import { defineRoute, type Route } from '../api/route.ts'
import { boundedText, integerText } from '../api/schemas.ts'
import type { AdminLog } from './admin-log-store.ts'

/** Acts in one answer, at most, and when nothing is said. */
const LIMIT_MAX = 1_000
const LIMIT = 100

const number = integerText({ min: 0, max: Number.MAX_SAFE_INTEGER }).nullable().default(null)

const actsQuery = z.object({
  before: number.describe('A position: acts older than it'),
  since: number.describe('Unix seconds'),
  until: number.describe('Unix seconds; acts from this time on are left out'),
  kind: boundedText({ min: 1, max: 100 }).nullable().default(null),
  limit: integerText({ min: 1, max: LIMIT_MAX }).default(LIMIT),
})

const actsReply = z.strictObject({ acts: z.array(adminAct) })

/** `GET /v1/admin/log`: what administrators did, newest first. */
export function adminLogRoutes(adminLog: Pick<AdminLog, 'list'>): readonly Route[] {
  return [
    defineRoute({
      method: 'GET',
      path: '/v1/admin/log',
      tag: ADMIN_ROUTE.tag,
      summary: 'What administrators did',
      scope: 'admin',
      query: actsQuery,
      reply: { name: 'AdminLog', schema: actsReply },
      handler: async ({ query }) => ({ acts: await adminLog.list(query) }),
    }),
  ]
}
