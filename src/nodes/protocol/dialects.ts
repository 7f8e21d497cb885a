/**
 * APIs besides chat completions that a node's backend may serve. Each name is also the feature that
 * the node announces (hello.ts).
 */
export const NODE_DIALECTS = ['responses', 'messages', 'completions'] as const
export type NodeDialect = (typeof NODE_DIALECTS)[number]

export function pathOfDialect(dialect: NodeDialect): string {
  return `/v1/${dialect}`
}

export function isNodeDialect(value: unknown): value is NodeDialect {
  return NODE_DIALECTS.some((dialect) => dialect === value)
}
