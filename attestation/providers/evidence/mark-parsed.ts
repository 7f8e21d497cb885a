/** The policies that parseProviderPolicy returned. Any other object could lack a demand. */
const parsedPolicies = new WeakSet<object>()

/** Records that parseProviderPolicy returned this policy. */
export function markParsed(policy: object): void {
  parsedPolicies.add(policy)
}

/** True for a policy that parseProviderPolicy returned. */
export function isParsedPolicy(policy: object): boolean {
  return parsedPolicies.has(policy)
}
