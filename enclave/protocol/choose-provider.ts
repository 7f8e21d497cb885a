import type { ProviderEntry } from './messages.ts'

/**
 * Returns the first provider in the table with a pattern that matches the whole model id, or null.
 * `*` matches any characters, or none. All else matches literally, case-sensitive. The enclave
 * routes with it, and the gateway chooses the credential; the enclave's choice decides.
 */
export function chooseProvider(
  table: readonly ProviderEntry[],
  model: string,
): ProviderEntry | null {
  return (
    table.find((entry) => entry.models.some((pattern) => matchesPattern(pattern, model))) ?? null
  )
}

/**
 * Returns true if a pattern matches the whole id, in linear time: hostile ids cannot cause
 * backtracking.
 */
export function matchesPattern(pattern: string, model: string): boolean {
  const [head = '', ...rest] = pattern.split('*')
  if (rest.length === 0) return model === pattern
  const tail = rest.pop() ?? ''
  if (model.length < head.length + tail.length || !model.startsWith(head) || !model.endsWith(tail))
    return false
  let position = head.length
  for (const piece of rest) {
    const found = model.indexOf(piece, position)
    if (found < 0 || found + piece.length > model.length - tail.length) return false
    position = found + piece.length
  }
  return true
}
