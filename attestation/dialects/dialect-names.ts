/** The API that a call uses. The path of the request shows it. */
export type DialectName = 'chat' | 'responses' | 'messages'

/**
 * The dialects, each with the headers of a call that are forwarded to the provider and hashed.
 * Names are in lower case.
 */
export const DIALECT_HEADERS: Readonly<Record<DialectName, readonly string[]>> = {
  chat: [],
  responses: ['openai-beta'],
  messages: ['anthropic-version', 'anthropic-beta'],
}

export const DIALECT_NAMES = Object.keys(DIALECT_HEADERS) as readonly DialectName[]

export function isDialectName(value: unknown): value is DialectName {
  return typeof value === 'string' && Object.hasOwn(DIALECT_HEADERS, value)
}

/** The dialect that a stored name stands for. Records of chat calls do not name a dialect. */
export function dialectNamed(name: unknown): DialectName {
  return isDialectName(name) ? name : 'chat'
}
