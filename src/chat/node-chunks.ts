import { type ChunkIdentity, invalidChunk, makeChunk } from '../../attestation/chunk-forms.ts'
import { makeWellFormed } from '../../attestation/json/parse-lenient.ts'
import {
  isJsonArray,
  isJsonObject,
  type Json,
  type JsonObject,
} from '../../attestation/json/value.ts'
import {
  type ChunkState,
  isFinished,
  NO_CHUNKS,
  normalizeChunk,
} from '../../attestation/stream/normalize-chunk.ts'

/**
 * Changes the chunks of one node's answer into the form that callers expect. It belongs to one
 * answer.
 */
export type NodeChunks = {
  /**
   * Gives the caller's chunks for one chunk of the node, which is attacker-controlled. Throws
   * FormatError.
   */
  push(chunk: JsonObject): readonly JsonObject[]
  /**
   * Call it when the node is done. Throws FormatError `invalid_chunk` when its answer is not
   * complete.
   */
  finish(): void
  /** Gives the chunk that contains only usage. Call it after `finish`. */
  usageChunk(usage: JsonObject): JsonObject
  /** The newest usage that the node stated, within the limits of the node's socket; or null. */
  usage(): JsonObject | null
  /** Number of text characters in the answer, with function calls. */
  textLength(): number
}

/**
 * Reads one node's chunks, by the rules for verified streams (attestation/stream). But the gateway
 * sets the identity: a node's statements about it are only claims.
 *
 * It does NOT show that a node ran the model that it offers, nor that its stated usage is true.
 */
export function createNodeChunks(options: {
  /** Its model is the requested model. */
  readonly identity: ChunkIdentity
  readonly choicesAsked: number
}): NodeChunks {
  const { identity, choicesAsked } = options
  const terms = { usageAsked: true, choicesAsked, fallback: identity }
  // The known identity stays, even when the node later states another.
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
