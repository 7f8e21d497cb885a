/** What a key may be used for; `admin` is for the operator, and allows nothing but the keys of all accounts. */
export const SCOPES = ['inference', 'nodes', 'history:all', 'admin'] as const

/**
 * - inference: completions and all else that models do, the account's history and its limits
 * - nodes: registering, running and inspecting nodes
 * - history:all: everybody's completions, also where `HISTORY_ALL` is false
 * - admin: the keys of every account
 */
export type Scope = (typeof SCOPES)[number]

/** Scopes of a key for which none were asked: what a customer needs. */
export const DEFAULT_SCOPES: readonly Scope[] = ['inference', 'nodes']

/** Whether text is the name of a scope. */
export function isScope(text: string): text is Scope {
  return SCOPES.some((scope) => scope === text)
}
