import type { RouterContext } from '@koa/router'
import type { Next, ParameterizedContext } from 'koa'
import type { CallScope } from '../observability/call-scope.ts'
import type { ErrorCode } from './errors.ts'
import type { Face } from './faces.ts'

export const SCOPES = ['inference', 'nodes', 'history:all', 'keys', 'admin'] as const

/**
 * - inference: completions and all else that models do; reading and erasing the account's history;
 *   the account's limits, budgets and usage
 * - nodes: registering, running, inspecting, renaming and archiving nodes
 * - history:all: reading the completions of all accounts, also where `HISTORY_ALL` is false
 * - keys: listing, making and revoking keys of the account, with no more rights than the acting key
 * - admin: the keys of every account, and what `/v1/admin/…` serves
 */
export type Scope = (typeof SCOPES)[number]

/** A key with the scope `admin` has what the scope `keys` gives. */
export function hasScope(scopes: readonly Scope[], scope: Scope): boolean {
  return scopes.includes(scope) || (scope === 'keys' && scopes.includes('admin'))
}

/** Scopes of a key that the operator makes without naming scopes: enough for a customer. */
export const DEFAULT_SCOPES: readonly Scope[] = ['inference', 'nodes', 'keys']

/** Scopes of a key that another key makes without naming scopes. */
export const MADE_SCOPES: readonly Scope[] = ['inference', 'nodes']

export function isScope(text: string): text is Scope {
  return SCOPES.some((scope) => scope === text)
}

export type Caller = {
  readonly accountId: string
  /** Public: logs may contain it. */
  readonly keyId: string
  readonly scopes: readonly Scope[]
  /** Tier of the account's limits. Null for the default tier. */
  readonly tier: string | null
  /** Unix seconds. Null if the key never expires. */
  readonly expiresAt: number | null
  /** True if the key or its account has a budget. */
  readonly isBudgeted?: boolean
}

/** Who acts, and from where, in the form of the administrative log. */
export type Operator = {
  /** `operator` (with the user's id if known), `key` with its public id, or `gateway`. */
  readonly who: string
  /** Null for an operator. */
  readonly accountId: string | null
  /**
   * An IP address, `control socket`, `command line`, `signal`, `configuration` or `first start`.
   */
  readonly from: string
}

/**
 * The error that a caller received. After a stream has begun, only its error event has the status.
 */
export type CallFailure = { readonly code: ErrorCode; readonly status: number }

export type RequestState = {
  /** `x-request-id`: the caller's value if it is well-formed, otherwise a new one. */
  requestId: string
  /** Milliseconds of the app's clock. */
  startedAtMs: number
  /** See createClientAddresses. */
  client: string | null
  face: Face
  /** Null before `authenticate` has run, and on routes without it. */
  caller: Caller | null
  /** The operator on the control socket. Null on the public port. */
  operator: Operator | null
  /**
   * When the answer's head was sent. Null before that. `firstEventAtMs`: a stream's first event.
   */
  headAtMs: number | null
  firstEventAtMs: number | null
  /** The error that the caller received instead of the answer, or of the rest of a stream. */
  failure: CallFailure | null
  /** Null if calls are neither observed nor logged. */
  scope: CallScope | null
  /** `isRoutine` of the route's declaration. */
  isRoutine: boolean
}

export type ApiContext = ParameterizedContext<RequestState, object>
export type ApiMiddleware = (context: ApiContext, next: Next) => Promise<void>

export type RouteContext = RouterContext<RequestState>

/** Answers 200 with `text`, which must be JSON. */
export function sendJsonText(context: ApiContext, text: string): void {
  context.status = 200
  context.set('content-type', JSON_TYPE)
  context.body = text
}

/** The content type of JSON answers. */
export const JSON_TYPE = 'application/json; charset=utf-8'
