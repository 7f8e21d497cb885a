/** What `make` gives for a key, kept from the first time on. */
export type Memory<Value> = (key: string, make: () => Value) => Value

/**
 * Gives a memory of at most `entriesMax` values. It forgets all of them when it is full: an
 * attacker may choose the keys.
 */
export function createMemory<Value>(entriesMax: number): Memory<Value> {
  const known = new Map<string, { readonly value: Value }>()
  return (key, make) => {
    const kept = known.get(key)
    if (kept !== undefined) return kept.value
    const value = make()
    if (known.size === entriesMax) known.clear()
    known.set(key, { value })
    return value
  }
}
