import {
  type ChunkIdentity,
  invalidChunk,
  makeChunk,
} from '#attestation/dialects/chat/chunk-forms.ts'
import {
  type ChunkState,
  isFinished,
  NO_CHUNKS,
  normalizeChunk,
} from '#attestation/dialects/chat/normalize-chunk.ts'
import { makeWellFormed } from '#attestation/json/parse-lenient.ts'
import { isJsonArray, isJsonObject, type Json, type JsonObject } from '#attestation/json/value.ts'

/** Converts the chunks of one node's answer to the form for callers. */
export type NodeChunks = {
  /** `chunk` is attacker-controlled. Throws FormatError. */
  push(chunk: JsonObject): readonly JsonObject[]
  /**
   * Call it at the end of the node's answer. Throws FormatError `invalid_chunk` if the answer is
   * not complete.
   */
  finish(): void
  /** Call it after `finish`. */
  usageChunk(usage: JsonObject): JsonObject
  /** The newest usage that the node stated, or null. The node's socket limits the usage's size. */
  usage(): JsonObject | null
  /** Characters of the answer, including function calls. */
  textLength(): number
}

/**
 * Applies the rules of verified streams (attestation/stream). Only the identity comes from the
 * gateway, because a node's identity is only a claim. Does NOT show that a node ran the model that
 * it offers, or that the usage that it states is true.
 */
export function createNodeChunks(options: {
  /** Contains the requested model. */
  readonly identity: ChunkIdentity
  readonly choicesAsked: number
}): NodeChunks {
  const { identity, choicesAsked } = options
  const terms = { usageAsked: true, choicesAsked, fallback: identity }
  // The identity never changes, even if the node states another identity.
  let state: ChunkState = { ...NO_CHUNKS, ...identity }
  let textLength = 0
  return {
    push(given) {
      if ((given.error ?? null) !== null) throw invalidChunk('expected a chunk, got an error')
      const step = normalizeChunk(terms, state, given)
      state = step.state
      return step.chunks.map((made) => {
        textLength += textLengthOf(made)
        return makeWellFormed(made) as JsonObject
      })
    },
    finish() {
      if (state.choices.size === 0) throw invalidChunk('expected at least one choice')
      if (!isFinished(state)) throw invalidChunk('expected a finish_reason of each choice')
    },
    usageChunk: (usage) => makeChunk(identity, { members: state.carried, choices: [], usage }),
    usage: () => state.usage,
    textLength: () => textLength,
  }
}

function textLengthOf({ choices }: JsonObject): number {
  let length = 0
  for (const choice of isJsonArray(choices) ? choices : []) {
    const delta = isJsonObject(choice) ? choice.delta : null
    if (!isJsonObject(delta)) continue
    for (const [name, value] of Object.entries(delta))
      if (name !== 'role') length += lengthOf(name, value)
  }
  return length
}

function lengthOf(name: string, value: Json): number {
  if (typeof value === 'string') return value.length
  return name === 'tool_calls' || name === 'function_call' ? JSON.stringify(value).length : 0
}
