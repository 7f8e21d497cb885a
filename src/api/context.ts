import type { RouterContext } from '@koa/router'
import type { Next, ParameterizedContext } from 'koa'
import type { CallScope } from '../observability/call-scope.ts'
import type { ErrorCode } from './errors.ts'
import type { Face } from './faces.ts'

/**
 * What a key may be used for. `admin` is for the operator: it opens only the keys of all accounts
 * and `/v1/admin/…`.
 */
export const SCOPES = ['inference', 'nodes', 'history:all', 'keys', 'admin'] as const

/**
 * - inference: completions and all else that models do, the account's history and its limits
 * - nodes: registering, running and inspecting nodes
 * - history:all: the completions of all accounts, also where `HISTORY_ALL` is false
 * - keys: making keys for its account, that may do no more than itself
 * - admin: the keys of every account, and what `/v1/admin/…` serves
 */
export type Scope = (typeof SCOPES)[number]

/** Scopes of a key that the operator makes without naming scopes: enough for a customer. */
export const DEFAULT_SCOPES: readonly Scope[] = ['inference', 'nodes', 'keys']

/** Scopes of a key that another key makes without naming scopes. */
export const MADE_SCOPES: readonly Scope[] = ['inference', 'nodes']

/** Returns true if the text is the name of a scope. */
export function isScope(text: string): text is Scope {
  return SCOPES.some((scope) => scope === text)
}

/** The holder of a valid API key. */
export type Caller = {
  readonly accountId: string
  /** Public id of the key. Logs may contain it. */
  readonly keyId: string
  readonly scopes: readonly Scope[]
  /** Tier of the account's limits. Null for the default tier. */
  readonly tier: string | null
  /** When the key expires, Unix seconds. Null if it never expires. */
  readonly expiresAt: number | null
  /** True if the key or its account has a budget. */
  readonly isBudgeted?: boolean
}

/** Who acts, and from where, in the form of the administrative log. */
export type Operator = {
  /** `operator` (with the user's id if known), `key` with its public id, or `gateway`. */
  readonly who: string
  /** The account of the key. Null for an operator. */
  readonly accountId: string | null
  /**
   * An IP address, `control socket`, `command line`, `signal`, `configuration` or `first start`.
   */
  readonly from: string
}

/**
 * The code and the status of the error that a caller received. After a stream has begun, only its
 * error event reports the status.
 */
export type CallFailure = { readonly code: ErrorCode; readonly status: number }

/** State that middleware sets for the handlers behind it. */
export type RequestState = {
  /** `x-request-id` of this call: the caller's value if it is well-formed, otherwise a new one. */
  requestId: string
  /** When the call arrived, milliseconds of the app's clock. */
  startedAtMs: number
  /** Address of the client that sent the call (createClientAddresses). */
  client: string | null
  /** The form of the call's errors and limits. */
  face: Face
  /** Null before `authenticate` has run, and on routes without it. */
  caller: Caller | null
  /** The operator who calls on the control socket. Null on the public port. */
  operator: Operator | null
  /** When the head of the answer, and the first event of a stream, were sent. Null before that. */
  headAtMs: number | null
  firstEventAtMs: number | null
  /**
   * The error that the caller received instead of the answer, or instead of the rest of a stream.
   * Null without an error.
   */
  failure: CallFailure | null
  /** What is recorded about the running call. Null if calls are neither observed nor logged. */
  scope: CallScope | null
  /** The value of `isRoutine` in the route's declaration. */
  isRoutine: boolean
}

export type ApiContext = ParameterizedContext<RequestState, object>
export type ApiMiddleware = (context: ApiContext, next: Next) => Promise<void>

export type RouteContext = RouterContext<RequestState>

/** Answers 200 with `text`, which must be JSON and is sent unchanged. */
export function sendJsonText(context: ApiContext, text: string): void {
  context.status = 200
  context.set('content-type', JSON_TYPE)
  context.body = text
}

/** Content type of all answers except streams. */
export const JSON_TYPE = 'application/json; charset=utf-8'
