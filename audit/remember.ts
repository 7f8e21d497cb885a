/**
 * Returns the value for a key. On the first call, `make` computes the value. After that, the value
 * is kept.
 */
export type Memory<Value> = (key: string, make: () => Value) => Value

/**
 * Creates a memory of at most `entriesMax` values. When it is full, it drops all values, because an
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
