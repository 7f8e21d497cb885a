import type { IncomingMessage } from 'node:http'
import { z } from 'zod'
import { createAdmission } from '../api/admission.ts'
import { MADE_SCOPES, SCOPES } from '../api/context.ts'
import { budgetDescription } from '../api/control-operations.ts'
import { boundedInteger } from '../api/form-schema.ts'
import { defineRoute, type Route } from '../api/route.ts'
import { boundedText, faultIssue, patternText, unixSeconds } from '../api/schemas.ts'
import type { ManagedKeys } from './managed-keys.ts'

/** Calls at once that make keys, and the bytes of their bodies together. */
const KEY_CALLS_MAX = 256
const KEY_CALLS_BYTES_MAX = 16 * 1024 * 1024

/** A name, some scopes and a time. */
const KEY_BODY_BYTES_MAX = 16 * 1024

/** As on the command line (control/operations.ts). */
const KEY_NAME_LENGTH_MAX = 100

/** Unix seconds; in the year 9999. */
const EXPIRES_AT_MAX = 253_402_300_799

const uuid = patternText(
  /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/i,
  'uuid_parsing',
  'a valid UUID',
)

const scopes = z
  .array(z.enum(SCOPES))
  .min(1)
  .max(SCOPES.length)
  .check(({ value, issues }) => {
    if (new Set(value).size < value.length)
      issues.push(faultIssue([], 'value_error', 'Input should name each scope once'))
  })

/**
 * A key to be made; null is unset, unknown members pass. `account_id` unset: for the caller's own
 * account.
 */
export const createKey = z
  .looseObject({
    name: boundedText({ min: 1, max: KEY_NAME_LENGTH_MAX }),
    scopes: scopes.nullish(),
    expires_at: boundedInteger({ min: 1, max: EXPIRES_AT_MAX }).nullish(),
    account_id: uuid.nullish(),
  })
  .transform(({ name, scopes, expires_at: expiresAt, account_id: accountId }) => ({
    name,
    scopes: scopes ?? MADE_SCOPES,
    expiresAt: typeof expiresAt === 'number' ? expiresAt : null,
    accountId: accountId ?? null,
  }))

/** The account whose keys are asked for; unset: the caller's own. */
const keysQuery = z.looseObject({ account_id: uuid.nullish() })

/** A key as it is shown: never the secret. */
const managedKey = z.strictObject({
  id: z.string(),
  account_id: z.uuid(),
  account_name: z.string(),
  name: z.string(),
  scopes: z.array(z.enum(SCOPES)),
  made_by: z.string().nullable().describe('Id of the key that made it; null for the operator'),
  created_at: unixSeconds,
  expires_at: unixSeconds.nullable(),
  revoked_at: unixSeconds.nullable(),
  last_used_at: unixSeconds.nullable().describe('To the minute'),
})

const keyList = z.strictObject({ keys: z.array(managedKey) })
export type KeyListReply = z.output<typeof keyList>

const newKey = managedKey.extend({ key: z.string().describe('The secret, shown only once') })
export type NewKeyReply = z.output<typeof newKey>

/** Whose key it is that asks, and what it is for. */
const keyHolder = z.strictObject({
  account_id: z.uuid(),
  account_name: z.string(),
  key_id: z.string(),
  scopes: z.array(z.enum(SCOPES)),
  tier: z.string().nullable().describe("Tier of the account's limits; null for the default tier"),
  expires_at: unixSeconds.nullable(),
  budgets: z
    .array(
      budgetDescription.omit({ account: true, key: true }).extend({
        key_id: z.string().nullable().describe('Null: the budget covers the whole account'),
      }),
    )
    .describe('What the account and this key may use; money in billionths'),
})
export type KeyHolderReply = z.output<typeof keyHolder>

/**
 * Routes of API keys, for a dashboard: whose this one is, list, make, revoke. `clientOf` gives the
 * address that a call came from.
 */
export function keyRoutes(
  keys: ManagedKeys,
  clientOf: (request: IncomingMessage) => string | null,
): readonly Route[] {
  const account = { tag: 'Account', scope: 'any' } as const
  return [
    defineRoute({
      ...account,
      method: 'GET',
      path: '/v1/dashboard/me',
      summary: 'The account and the scopes of this API key',
      reply: { name: 'KeyHolder', schema: keyHolder },
      handler: ({ caller }) => keys.describeHolder(caller()),
    }),
    defineRoute({
      ...account,
      method: 'GET',
      path: '/v1/dashboard/keys',
      summary: 'API keys',
      query: keysQuery,
      reply: { name: 'KeyList', schema: keyList },
      errors: ['insufficient_scope'],
      handler: ({ caller, query }) => keys.list(caller(), query.account_id ?? null),
    }),
    defineRoute({
      ...account,
      method: 'POST',
      path: '/v1/dashboard/keys',
      summary: 'Make an API key',
      body: {
        name: 'CreateKeyRequest',
        schema: createKey,
        bytesMax: KEY_BODY_BYTES_MAX,
        example: { name: 'my service', scopes: ['inference'] },
      },
      reply: { name: 'NewKey', schema: newKey },
      errors: ['insufficient_scope', 'limit_reached'],
      admission: createAdmission({ callsMax: KEY_CALLS_MAX, bytesMax: KEY_CALLS_BYTES_MAX }),
      handler: ({ caller, body, context }) =>
        keys.create(caller(), body, clientOf(context.req) ?? 'unknown'),
    }),
    defineRoute({
      ...account,
      method: 'DELETE',
      path: '/v1/dashboard/keys/:id',
      summary: 'Revoke an API key',
      params: z.object({ id: z.string() }),
      reply: { name: 'Key', schema: managedKey },
      errors: ['not_found', 'insufficient_scope'],
      handler: ({ caller, params, context }) =>
        keys.revoke(caller(), params.id, clientOf(context.req) ?? 'unknown'),
    }),
  ]
}
