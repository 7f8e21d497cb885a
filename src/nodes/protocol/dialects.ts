/**
 * APIs besides chat completions that a node's backend may serve. Each name is also the feature that
 * the node announces (hello.ts). Frames carry the answers as events or as the text of a body, as
 * the backend wrote them.
 */
export const NODE_DIALECTS = ['responses', 'messages', 'completions'] as const
export type NodeDialect = (typeof NODE_DIALECTS)[number]

/** The path of a dialect, at a backend and at the gateway. */
export function pathOfDialect(dialect: NodeDialect): string {
  return `/v1/${dialect}`
}

/** Returns true if the value names a dialect. */
export function isNodeDialect(value: unknown): value is NodeDialect {
  return NODE_DIALECTS.some((dialect) => dialect === value)
}
