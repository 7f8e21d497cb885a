import { invalidChunk } from './dialects/chat/chunk-forms.ts'
import { isJsonArray, isJsonObject, type Json, type JsonObject, memberOf } from './json/value.ts'

/**
 * Checks that each choice of a kept stream begins with its role, because some readers do not show
 * the tool calls of a choice without a role. checkChunk must have accepted the chunks. Throws
 * FormatError `invalid_chunk`.
 */
export function checkOpenings(chunks: readonly JsonObject[]): void {
  const begun = new Set<Json | undefined>()
  for (const { choices } of chunks)
    for (const choice of isJsonArray(choices) ? choices.filter(isJsonObject) : []) {
      const delta = memberOf(choice, 'delta')
      const role = isJsonObject(delta) ? (memberOf(delta, 'role') ?? null) : null
      if (role === null && !begun.has(choice.index))
        throw invalidChunk('expected each choice to begin with its role')
      begun.add(choice.index)
    }
}
