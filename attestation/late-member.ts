import { isJsonArray, isJsonObject, type JsonObject, memberOf } from './json/value.ts'

/**
 * What chunks say too late or twice, in words; null when there is nothing: a choice that goes on
 * after its `finish_reason`, where some readers have stopped listening, and a second `usage`, of
 * which some take the first. For chunks that no stream hash binds.
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
