import { PROOF_MEMBERS } from './completion-hash.ts'

import { canonicalizeJson } from './json/canonical.ts'
import { isJsonArray, isJsonObject, type Json, type JsonObject, memberOf } from './json/value.ts'

/**
 * Returns the name of a member that changes its value between chunks, or null. The signed answer
 * has only the last value, but a program may have shown the first value. Ignores null.
 */
export function findReplacedMember(chunks: readonly JsonObject[]): string | null {
  const known = new Map<string, string>()
  for (const chunk of chunks)
    for (const [place, name, value] of membersOf(chunk)) {
      if (value === null) continue
      const text = canonicalizeJson(value)
      const before = known.get(`${place} ${name}`)
      if (before !== undefined && before !== text) return name
      known.set(`${place} ${name}`, text)
    }
  return null
}

function* membersOf(chunk: JsonObject): Generator<readonly [string, string, Json]> {
  for (const [name, value] of Object.entries(chunk))
    if (!APART_IN_CHUNK.has(name)) yield ['', name, value]
  const choices = memberOf(chunk, 'choices')
  for (const choice of isJsonArray(choices) ? choices.filter(isJsonObject) : [])
    for (const [name, value] of Object.entries(choice))
      if (!APART_IN_CHOICE.has(name)) yield [String(memberOf(choice, 'index')), name, value]
}

/** Not signed (the proof), compared by itself (`choices`), or allowed only once (`usage`). */
const APART_IN_CHUNK: ReadonlySet<string> = new Set([...PROOF_MEMBERS, 'choices', 'usage'])

/** Each chunk continues the first two. The last must not change (checkChunk). */
const APART_IN_CHOICE: ReadonlySet<string> = new Set(['delta', 'logprobs', 'finish_reason'])
