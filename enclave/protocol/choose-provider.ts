import { DIALECT_NAMES, type DialectName } from '#attestation/dialects/dialect-names.ts'
import type { ProviderEndpoint, ProviderEntry } from './enclave-api.ts'

/**
 * Returns the first provider in the table that has the dialect and a pattern that matches the whole
 * model id, or null. `*` matches any characters, or none. All else matches literally,
 * case-sensitive. The gateway chooses the credential with this function, and the enclave routes the
 * call. The enclave refuses the call if their providers differ.
 */
export function chooseProvider(
  table: readonly ProviderEntry[],
  model: string,
  dialect: DialectName = 'chat',
): ProviderEntry | null {
  const serves = (entry: ProviderEntry) =>
    endpointOf(entry, dialect) !== null && entry.models.some((one) => matchesPattern(one, model))
  return table.find(serves) ?? null
}

/** Null if the provider does not have the dialect. */
export function endpointOf(entry: ProviderEntry, dialect: DialectName): ProviderEndpoint | null {
  return dialect === 'chat' ? entry : (entry.endpoints?.[dialect] ?? null)
}

/** Empty if `secret` is null. */
export function credentialHeader({ credential }: ProviderEndpoint, secret: string | null) {
  if (secret === null) return {}
  return { [credential ?? 'authorization']: credential ? secret : `Bearer ${secret}` }
}

/** Returns a message that names the dialects in which a provider serves the model, if any. */
export function unsupportedMessage(
  table: readonly ProviderEntry[],
  model: string,
  dialect: DialectName,
): string {
  const others = DIALECT_NAMES.filter((name) => chooseProvider(table, model, name) !== null)
  if (others.length === 0) return 'No provider serves this model.'
  return `No provider serves this model as ${dialect}. One serves it as ${others.join(' and ')}.`
}

/** Matches the whole id in linear time: hostile ids cannot cause backtracking. */
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
