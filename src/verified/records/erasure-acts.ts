import { z } from 'zod'
import { isErasureReason } from '#attestation/erasure.ts'
import { settleAccount } from '../../accounts/account-acts.ts'
import { actDone, defineAct } from '../../accounts/acts.ts'
import { nameText } from '../../api/schemas.ts'
import type { Database } from '../../storage/database.ts'
import { RETENTION_DAYS_MAX } from '../../storage/settings.ts'
import { actOfErasure } from './erasures.ts'
import { createErasuresStore } from './erasures-store.ts'

/** Maximum records that one act erases, so that the act ends within its time limit. */
const ERASE_MAX = 2_000

const path = '/v1/admin/erasures'
const reason = z.string().refine(isErasureReason)

type Place = { readonly database: Pick<Database, 'queries'> }

/**
 * Only the operator may make these acts. Proofs stay, because they have only hashes of the content.
 */
export const erasureActs = {
  /** `found` counts all records with the hash, `erased` only the records that still had content. */
  record: defineAct({
    method: 'POST',
    path,
    summary: 'Erase the content of the records with a hash',
    scope: 'operator',
    body: { schema: z.object({ hash: z.string().regex(/^[0-9a-f]{64}$/), reason }) },
    reply: { schema: z.object({ found: z.int(), erased: z.int() }) },
    run: ({ hash, reason }, { database }: Place) => {
      const order = { by: 'operator', reason } as const
      return createErasuresStore(database).eraseRecords({ hash, accountId: null }, order)
    },
    trail: ({ hash, reason }, done) => [actOfErasure(hash, reason, done)],
    answer: (done) => done,
  }),
  /**
   * Erases the account's content up to now. Callers can no longer read the content, but the rows
   * contain it until the act `remove`.
   */
  account: defineAct({
    method: 'PUT',
    path,
    summary: 'Erase the content of an account',
    scope: 'operator',
    body: { schema: z.object({ account: nameText, reason }) },
    reply: actDone,
    errors: ['not_found'],
    async run({ account, reason }, { database }: Place) {
      const store = createErasuresStore(database)
      const erased = await store.eraseAccount(account, { by: 'operator', reason })
      if (erased === null) return 'unknown_account'
      await store.forgetAnswers()
      return 'erased'
    },
    trail: ({ account, reason }, outcome) => [
      { kind: 'erasure.account', target: account, details: { reason }, outcome },
    ],
    answer: settleAccount,
  }),
  /** The caller repeats this act until `is_done` is true. */
  remove: defineAct({
    method: 'DELETE',
    path,
    summary: 'Remove a part of what was erased of an account',
    scope: 'operator',
    query: z.object({ account: nameText }),
    reply: { schema: z.object({ records: z.int(), is_done: z.boolean() }) },
    async run({ account }, { database }: Place) {
      const store = createErasuresStore(database)
      const due = await store.findDue(account)
      if (due === null) return { records: 0, is_done: true }
      const records = await store.eraseDue(due, ERASE_MAX)
      return { records: records === 'busy' ? 0 : records, is_done: false }
    },
    trail: 'continues what was recorded',
    answer: (done) => done,
  }),
  /** With `days` null, the gateway's settings apply. */
  setRetention: defineAct({
    method: 'PUT',
    path: '/v1/admin/retention',
    summary: 'Set after how many days content of an account is erased',
    scope: 'operator',
    body: {
      schema: z.object({
        name: nameText,
        days: z.int().min(1).max(RETENTION_DAYS_MAX).nullable(),
      }),
    },
    reply: actDone,
    errors: ['not_found'],
    run: async ({ name, days }, { database }: Place) =>
      (await createErasuresStore(database).setRetention(name, days)) ? 'set' : 'unknown_account',
    trail: ({ name, days }, outcome) => [
      { kind: 'retention.set', target: name, details: { days }, outcome },
    ],
    answer: settleAccount,
  }),
}
