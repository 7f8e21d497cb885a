import { isJsonArray, isJsonObject, type JsonObject, memberOf } from './json/value.ts'

/**
 * Describes a member that chunks have too late or twice; null without one. A choice must not go on
 * after its `finish_reason`: some readers have stopped by then. A second `usage` is a fault too:
 * some readers take the first. For chunks without a stream hash.
 */
export function findLateMember(chunks: readonly JsonObject[]): string | null {
  const finished = new Set<string>()
  let usages = 0
  for (const chunk of chunks) {
    if ((memberOf(chunk, 'usage') ?? null) !== null && ++usages > 1) return 'a second usage'
    const choices = memberOf(chunk, 'choices')
    for (const choice of isJsonArray(choices) ? choices.filter(isJsonObject) : []) {
      const index = String(memberOf(choice, 'index') ?? 0)
      if (finished.has(index)) return `choice ${index} after its finish_reason`
      if ((memberOf(choice, 'finish_reason') ?? null) !== null) finished.add(index)
    }
  }
  return null
}
