import {
  isCount,
  isJsonArray,
  isJsonObject,
  type Json,
  type JsonObject,
} from '#attestation/json/value.ts'

export type ChunkFacts = {
  /** UTF-16 units of all text: content, reasoning, refusals, tool calls. */
  readonly textLength: number
  /** The chunk has text or ends a choice. */
  readonly isToken: boolean
  readonly finished: readonly number[]
  /** The usage that the node claims, unchecked. */
  readonly usage: JsonObject | undefined
  /** Usage without choices. Old clients end a run with such a chunk. */
  readonly isUsageOnly: boolean
  /** An event with which a backend reports its failure. Nodes report failures of chat in frames. */
  readonly isFailure: boolean
}

/** Maximum number of choices. The API limits the request member `n` to the same number. */
export const CHOICES_MAX = 128

/**
 * Reads an attacker-controlled chunk. Null unless `choices` is an array of objects, each with an
 * integer `index` and, if present, an object `delta`. A usage chunk may have no `choices`. The
 * chunk itself is the first of at most `depthMax` levels.
 */
export function readChunk(chunk: JsonObject, depthMax: number): ChunkFacts | null {
  const { object, usage } = chunk
  const hasUsage = isJsonObject(usage) && Object.values(usage).some(isCount)
  const mayLackChoices = hasUsage || object === 'chat.completion.chunk'
  const choices = chunk.choices ?? (mayLackChoices ? [] : null)
  if (!isJsonArray(choices) || choices.length > CHOICES_MAX || !isShallow(chunk, depthMax))
    return null
  let textLength = 0
  let finished: number[] | null = null
  for (const [position, choice] of choices.entries()) {
    if (!isChoice(choice)) return null
    textLength += textLengthOf(choice.delta ?? {})
    const { finish_reason: reason, index } = choice
    if (typeof reason === 'string' && reason !== '')
      finished = [...(finished ?? []), index ?? position]
  }
  const claim = isJsonObject(usage) ? usage : undefined
  return {
    textLength,
    isToken: textLength > 0 || finished !== null,
    finished: finished ?? NONE,
    usage: claim,
    isUsageOnly: choices.length === 0 && claim !== undefined,
    isFailure: false,
  }
}

const NONE: readonly number[] = []

type Choice = JsonObject & { readonly index: number | null; readonly delta: JsonObject | null }

function isChoice(choice: Json): choice is Choice {
  if (!isJsonObject(choice)) return false
  const { index, delta } = choice
  const isPlace =
    typeof index === 'number' && Number.isInteger(index) && index >= 0 && index < CHOICES_MAX
  return (isPlace || (index ?? null) === null) && ((delta ?? null) === null || isJsonObject(delta))
}

/** Counts all texts except the role. `isShallow` has already limited the depth. */
function textLengthOf(delta: JsonObject): number {
  let length = 0
  for (const name in delta) if (name !== 'role') length += stringLengths(delta[name])
  return length
}

export function stringLengths(value: Json | undefined): number {
  if (typeof value === 'string') return value.length
  if (typeof value !== 'object' || value === null) return 0
  let length = 0
  for (const member of Object.values(value)) length += stringLengths(member)
  return length
}

function isShallow(value: Json | undefined, depth: number): boolean {
  if (typeof value !== 'object' || value === null) return true
  if (depth === 0) return false
  if (isJsonArray(value)) {
    for (const item of value) if (!isShallow(item, depth - 1)) return false
    return true
  }
  for (const name in value) if (!isShallow(value[name], depth - 1)) return false
  return true
}
