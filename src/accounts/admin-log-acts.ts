import { z } from 'zod'
import { boundedText, integerText } from '../api/schemas.ts'
import { type ActPlace, defineAct } from './acts.ts'
import { adminAct, adminLogCheck } from './admin-log-store.ts'

const number = integerText({ min: 0, max: Number.MAX_SAFE_INTEGER }).nullable().default(null)

export const adminLogActs = {
  list: defineAct({
    method: 'GET',
    path: '/v1/admin/log',
    summary: 'What administrators did',
    scope: 'admin',
    query: z.object({
      before: number.describe('A position: acts older than it'),
      since: number.describe('Unix seconds'),
      until: number.describe('Unix seconds; acts from this time on are left out'),
      kind: boundedText({ min: 1, max: 100 }).nullable().default(null),
      limit: integerText({ min: 1, max: 1_000 }).default(100),
    }),
    reply: { name: 'AdminLog', schema: z.strictObject({ acts: z.array(adminAct) }) },
    run: (query, { adminLog }: Pick<ActPlace, 'adminLog'>) => adminLog.list(query),
    trail: 'changes nothing',
    answer: (acts) => ({ acts: [...acts] }),
  }),
  /** Checks the chain of hashes. `expected` is the result of an earlier check. */
  check: defineAct({
    method: 'POST',
    path: '/v1/admin/log/check',
    summary: 'Check that no act was changed',
    scope: 'operator',
    body: {
      schema: z.object({ expected: z.object({ position: z.int(), hash: z.string() }).nullable() }),
    },
    reply: { schema: adminLogCheck },
    run: ({ expected }, { adminLog }: Pick<ActPlace, 'adminLog'>) => adminLog.check(expected),
    trail: 'changes nothing',
    answer: (check) => check,
  }),
}
