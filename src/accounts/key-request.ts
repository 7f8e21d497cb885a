import { z } from 'zod'
import { boundedInteger } from '../api/bounded-integer.ts'
import { boundedText } from '../api/bounded-text.ts'
import { faultIssue } from '../api/issues.ts'
import { validateBody } from '../api/json-body.ts'
import { patternText, type QueryParameters, validateParameters } from '../api/parameters.ts'
import { DEFAULT_SCOPES, SCOPES, type Scope } from '../api/scopes.ts'

/** As on the command line (control/operations.ts). */
export const KEY_NAME_LENGTH_MAX = 100

/** Unix seconds; in the year 9999. */
export const EXPIRES_AT_MAX = 253_402_300_799

export type CreateKeyRequest = {
  readonly name: string
  readonly scopes: readonly Scope[]
  /** Unix seconds; null for never. */
  readonly expiresAt: number | null
  /** Null for the caller's own. */
  readonly accountId: string | null
}

/** Body of `POST /v1/dashboard/keys`. This and all below throw ValidationError; unknown members pass. */
export function parseCreateKey(body: Uint8Array): CreateKeyRequest {
  const { name, scopes, expires_at: expiresAt, account_id: accountId } = validateBody(createKey, body)
  return {
    name,
    scopes: scopes ?? DEFAULT_SCOPES,
    expiresAt: typeof expiresAt === 'number' ? expiresAt : null,
    accountId: accountId ?? null,
  }
}

/** Query of `GET /v1/dashboard/keys`: the account whose keys are asked for; null for the caller's own. */
export function parseKeysQuery(query: QueryParameters): string | null {
  return validateParameters('query', keysQuery, query).account_id ?? null
}

const uuid = patternText(/^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/i, 'uuid_parsing', 'a valid UUID')

const scopes = z
  .array(z.enum(SCOPES))
  .min(1)
  .max(SCOPES.length)
  .check(({ value, issues }) => {
    if (new Set(value).size < value.length)
      issues.push(faultIssue([], 'value_error', 'Input should name each scope once'))
  })

/** Body of `POST /v1/dashboard/keys`. */
export const createKey = z.looseObject({
  name: boundedText({ min: 1, max: KEY_NAME_LENGTH_MAX }),
  scopes: scopes.nullish(),
  expires_at: boundedInteger({ min: 1, max: EXPIRES_AT_MAX }).nullish(),
  account_id: uuid.nullish(),
})

/** Query of `GET /v1/dashboard/keys`. */
export const keysQuery = z.looseObject({ account_id: uuid.nullish() })
