/**
 * The secret of an API key: everything after its second underscore. base64url contains underscores
 * too.
 */
export function secretOf(key: string): string {
  const secret = /^afd_[a-z0-9]+_(.+)$/.exec(key)?.[1]
  if (secret === undefined) throw new Error('expected an API key')
  return secret
}
