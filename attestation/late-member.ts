import { isJsonArray, isJsonObject, type JsonObject, memberOf } from './json/value.ts'

/**
 * Returns a description of a member that comes too late in the chunks, or null. A choice must not
 * continue after its `finish_reason`, because some readers stop there. A second `usage` is refused,
 * because some readers take the first. Needed only if no stream hash covers the chunks.
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
      // An empty text counts as missing, as in the assembly.
      if ((memberOf(choice, 'finish_reason') ?? '') !== '') finished.add(index)
    }
  }
  return null
}
