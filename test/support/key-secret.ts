/**
 * The secret of an API key, which is all after its second underscore: base64url has underscores of
 * its own.
 */
export function secretOf(key: string): string {
  const secret = /^afd_[a-z0-9]+_(.+)$/.exec(key)?.[1]
  if (secret === undefined) throw new Error('expected an API key')
  return secret
}
