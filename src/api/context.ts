import type { RouterContext } from '@koa/router'
import type { Next, ParameterizedContext } from 'koa'
import type { CallScope } from '../observability/call-scope.ts'
import type { ErrorCode } from './errors.ts'

/**
 * What a key may be used for; `admin` is for the operator, and allows nothing but the keys of all
 * accounts and `/v1/admin/…`.
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

/** Scopes of a key that the operator makes without naming scopes: what a customer needs. */
export const DEFAULT_SCOPES: readonly Scope[] = ['inference', 'nodes', 'keys']

/** Scopes of a key that another key makes without naming scopes. */
export const MADE_SCOPES: readonly Scope[] = ['inference', 'nodes']

/** Whether text is the name of a scope. */
export function isScope(text: string): text is Scope {
  return SCOPES.some((scope) => scope === text)
}

/** Who a valid API key belongs to. */
export type Caller = {
  readonly accountId: string
  /** Public id of the key; fit for logs. */
  readonly keyId: string
  readonly scopes: readonly Scope[]
  /** Tier of the account's limits; null for the default one. */
  readonly tier: string | null
  /** When the key ends, Unix seconds; null for never. */
  readonly expiresAt: number | null
  /** Whether the key or its account has a budget. */
  readonly isBudgeted?: boolean
}

/**
 * The error that a caller received: its code, and its status. A stream that has begun can report
 * the status only in its error event.
 */
export type CallFailure = { readonly code: ErrorCode; readonly status: number }

/** What middleware leaves for what stands behind it. */
export type RequestState = {
  /** `x-request-id` of this call: the caller's if it is well-formed, else ours. */
  requestId: string
  /** When the call came in, milliseconds of the app's clock. */
  startedAtMs: number
  /** Address of the client that sent the call (createClientAddresses). */
  client: string | null
  /** Null before, and without, `authenticate`. */
  caller: Caller | null
  /** When the answer's head, and a stream's first event, went out; null before. */
  headAtMs: number | null
  firstEventAtMs: number | null
  /**
   * The error that the caller received in place of an answer, or of the rest of a stream; null
   * without an error.
   */
  failure: CallFailure | null
  /**
   * What is recorded about the call while it runs; null where calls are neither observed nor
   * logged.
   */
  scope: CallScope | null
  /** As its route declares it. */
  isRoutine: boolean
}

export type ApiContext = ParameterizedContext<RequestState, object>
export type ApiMiddleware = (context: ApiContext, next: Next) => Promise<void>

export type RouteContext = RouterContext<RequestState>

/** Answers 200 with JSON `text` as it is. */
export function sendJsonText(context: ApiContext, text: string): void {
  context.status = 200
  context.set('content-type', JSON_TYPE)
  context.body = text
}

/** Content type of all answers but streams. */
export const JSON_TYPE = 'application/json; charset=utf-8'
