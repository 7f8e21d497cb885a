type Memory<Value> = (key: string, make: () => Value) => Value

/** Returns a memory that drops all values when full, because an attacker can choose the keys. */
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
