import { z } from 'zod'
import { ApiError } from '../api/errors.ts'
import type { Database } from '../storage/database.ts'
import { defineAct } from './acts.ts'
import { createUsageStore, USAGE_ROWS_MAX, usageQuery, usageRow } from './usage-store.ts'

export const usageActs = {
  /** The range may have any length. Sums of money are in billionths. */
  report: defineAct({
    method: 'POST',
    path: '/v1/admin/usage/report',
    summary: 'Use of accounts in any range',
    scope: 'operator',
    body: { schema: usageQuery },
    reply: { schema: z.object({ rows: z.array(usageRow) }) },
    errors: ['not_found', 'limit_reached'],
    run: ({ account, ...query }, { database }: { readonly database: Pick<Database, 'queries'> }) =>
      createUsageStore(database).report({
        ...query,
        account: account === null ? null : { name: account },
      }),
    trail: 'changes nothing',
    answer(rows) {
      if (rows === 'too_many')
        throw new ApiError('limit_reached', `There are more than ${USAGE_ROWS_MAX} rows`)
      if (rows === 'unknown_account')
        throw new ApiError('not_found', 'There is no account with this name')
      return { rows: [...rows] }
    },
  }),
}
