import { z } from 'zod'
import { SCOPES } from '../api/context.ts'
import { ApiError } from '../api/errors.ts'
import { nameText } from '../api/schemas.ts'
import type { Database } from '../storage/database.ts'
import { defineAct } from './acts.ts'
import { describeKey, managedKey } from './key-routes.ts'
import { creationOf, keysIn, revocationsOf } from './open-keys.ts'

type Place = { readonly database: Pick<Database, 'queries'> }

/** These acts apply to keys of any account, with any scopes. */
export const keyActs = {
  /** Creates the account if no account has this name. The secret is not shown again. */
  create: defineAct({
    method: 'POST',
    path: '/v1/admin/keys',
    summary: 'Create a key',
    scope: 'operator',
    body: {
      schema: z.object({
        account: nameText,
        name: nameText,
        scopes: z.array(z.enum(SCOPES)).min(1).readonly(),
        /** Null when the key never expires. */
        expires_at: z.int().nullable(),
      }),
    },
    reply: { schema: managedKey.extend({ key: z.string(), is_account_new: z.boolean() }) },
    run: ({ account, name, scopes, expires_at: expiresAt }, { database }: Place) =>
      keysIn(database).create({ accountName: account, name, scopes, expiresAt }),
    trail: ({ account }, { isAccountNew, key }) => [
      ...(isAccountNew ? [{ kind: 'account.open', target: account }] : []),
      creationOf(key),
    ],
    answer: ({ text, key, isAccountNew }) => ({
      ...describeKey(key),
      key: text,
      is_account_new: isAccountNew,
    }),
  }),
  list: defineAct({
    method: 'GET',
    path: '/v1/admin/keys',
    summary: 'All keys, oldest first',
    scope: 'operator',
    reply: { schema: z.object({ keys: z.array(managedKey) }) },
    run: (_, { database }: Place) => keysIn(database).list(),
    trail: 'changes nothing',
    answer: (keys) => ({ keys: keys.map(describeKey) }),
  }),
  /**
   * Revokes a key, and the keys that this key made for the same account, within a second. Returns
   * the ids of the keys that were valid before. Returns no ids if the key was already revoked.
   */
  revoke: defineAct({
    method: 'DELETE',
    path: '/v1/admin/keys',
    summary: 'Revoke a key',
    scope: 'operator',
    query: z.object({ id: z.string() }),
    reply: { schema: z.object({ revoked: z.array(z.string()) }) },
    errors: ['not_found'],
    run: ({ id }, { database }: Place) => keysIn(database).revoke(id),
    trail: ({ id }, ids) => revocationsOf(id, ids),
    answer(ids) {
      if (ids === null) throw new ApiError('not_found', 'There is no key with this id')
      return { revoked: [...ids] }
    },
  }),
}
