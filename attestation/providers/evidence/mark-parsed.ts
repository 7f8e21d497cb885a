/** The policies that parseProviderPolicy returned. Any other object could lack a member. */
const parsedPolicies = new WeakSet<object>()

export function markParsed(policy: object): void {
  parsedPolicies.add(policy)
}

export function isParsedPolicy(policy: object): boolean {
  return parsedPolicies.has(policy)
}
