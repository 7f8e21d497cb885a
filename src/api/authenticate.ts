import {
  type ApiContext,
  type ApiMiddleware,
  type Caller,
  hasScope,
  type Operator,
  type RequestState,
  type Scope,
} from './context.ts'
import { ApiError } from './errors.ts'

/** Null for a malformed, unknown or revoked key. Throws ApiError `account_disabled`. */
export type Authenticator = { authenticate(key: string): Promise<Caller | null> }

/**
 * Accepts a call with a valid key in `Authorization: Bearer <API_KEY>`, or in `x-api-key` if the
 * route's face reads it. The key must have the scope (null: any scope). Throws ApiError
 * `authorization_missing` without the header, `invalid_credentials` without a valid key in it,
 * `insufficient_scope`, `account_disabled`, and `not_ready` if keys cannot be looked up.
 */
export function authenticate(keys: Authenticator, scope: Scope | null = null): ApiMiddleware {
  return async (context, next) => {
    const header = credentialOf(context)
    if (header === undefined)
      throw new ApiError(
        'authorization_missing',
        'Expected the header Authorization: Bearer <API_KEY>',
      )
    const key = KEY_HEADER.exec(header)?.[1]
    const caller = key === undefined ? null : await findCaller(keys, key)
    if (caller === null)
      throw new ApiError('invalid_credentials', `The API key is not valid${hintAt(header)}`)
    context.state.caller = caller
    if (scope !== null) requireScope(caller, scope)
    await next()
  }
}

/** For a public route: records the caller if the key is valid, and accepts all other callers. */
export function recognize(keys: Authenticator): ApiMiddleware {
  return async (context, next) => {
    const key = KEY_HEADER.exec(context.req.headers.authorization ?? '')?.[1]
    // A key that cannot be looked up counts as no key.
    context.state.caller = key === undefined ? null : await keys.authenticate(key).catch(() => null)
    await next()
  }
}

/**
 * Returns a credential in the form of `Authorization`. An empty `x-api-key` counts as absent,
 * because SDKs whose key is set to an empty text send one. Throws ApiError `invalid_credentials`
 * for two different keys.
 */
function credentialOf({ req: { headers }, state: { face } }: ApiContext): string | undefined {
  const key = face.readsApiKeyHeader ? headers['x-api-key'] : undefined
  if (typeof key !== 'string' || key === '') return headers.authorization
  const { authorization = `Bearer ${key}` } = headers
  if (KEY_HEADER.exec(authorization)?.[1] !== key)
    throw new ApiError(
      'invalid_credentials',
      'The headers Authorization and x-api-key have different keys: send one of them',
    )
  return authorization
}

/** Names the most likely mistake in the header, without any character of the key. */
function hintAt(header: string): string {
  if (/^(bearer\s+){2}/i.test(header)) return ': the header has "Bearer" twice'
  if (/["'\u2018-\u201d]/.test(header)) return ': the header has a quotation mark'
  if (!/^bearer\s/i.test(header)) return ': expected the header Authorization: Bearer <API_KEY>'
  return /\s\S+\s/.test(header) ? ': the header has a space within the key' : ''
}

const KEY_HEADER = /^Bearer +([\x21-\x7e]{1,512})$/i

function requireScope({ scopes }: Pick<Caller, 'scopes'>, scope: Scope): void {
  if (hasScope(scopes, scope)) return
  throw new ApiError('insufficient_scope', `This needs a key with the scope ${scope}`)
}

/** Throws `not_ready` if the key store is unreachable, because the key may be valid. */
async function findCaller(keys: Authenticator, key: string): Promise<Caller | null> {
  try {
    return await keys.authenticate(key)
  } catch (cause) {
    if (cause instanceof ApiError) throw cause
    throw new ApiError('not_ready', 'API keys cannot be checked at the moment, try again', {
      cause,
    })
  }
}

/**
 * Returns the caller that `authenticate` found. Throws if `authenticate` has not run, because an
 * unknown caller must not be served.
 */
export function callerOf(state: { readonly caller: Caller | null }): Caller {
  if (state.caller === null) throw new TypeError('expected authenticate before this route')
  return state.caller
}

/** The operator on the control socket, otherwise the holder of the calling key. */
export function actorOf(state: RequestState): Operator {
  if (state.operator !== null) return state.operator
  const { keyId, accountId } = callerOf(state)
  return { who: `key ${keyId}`, accountId, from: state.client ?? 'unknown' }
}
