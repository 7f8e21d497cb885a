import type { IncomingHttpHeaders } from 'node:http'
import type { Caller } from '../api/context.ts'
import { ApiError } from '../api/errors.ts'

/** Finds who an API key belongs to: null for one that is malformed, unknown or revoked. Rejects when nobody can tell. */
export type Authenticate = (key: string) => Promise<Pick<Caller, 'accountId' | 'scopes'> | null>

/**
 * Whose key a handshake carries. Throws ApiError `authorization_missing`, `invalid_credentials` (also without the
 * scope `nodes`), or `not_ready` when keys
 * cannot be checked: answered over HTTP before the upgrade, as the public client tells a bad key by status 401.
 */
export async function authenticateNode(
  headers: IncomingHttpHeaders,
  authenticate: Authenticate,
): Promise<{ readonly accountId: string; readonly key: string }> {
  const header = headers.authorization
  if (header === undefined)
    throw new ApiError('authorization_missing', 'Expected the header Authorization: Bearer <API_KEY>')
  const [, key] = /^Bearer +([\x21-\x7e]{1,512})$/i.exec(header) ?? []
  if (key === undefined) throw new ApiError('invalid_credentials', 'The API key is not valid')
  const caller = await authenticate(key).catch((cause: unknown) => {
    throw new ApiError('not_ready', 'API keys cannot be checked at the moment, try again', { cause })
  })
  if (caller === null) throw new ApiError('invalid_credentials', 'The API key is not valid')
  if (!caller.scopes.includes('nodes'))
    throw new ApiError('invalid_credentials', 'The API key may not be used for nodes')
  return { accountId: caller.accountId, key }
}
