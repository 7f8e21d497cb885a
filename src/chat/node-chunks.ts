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
 * Brings the chunks of one node's answer into the form that callers are promised. Belongs to one
 * answer.
 */
export type NodeChunks = {
  /** The caller's chunks for one of the node's (attacker-controlled). Throws FormatError. */
  push(chunk: JsonObject): readonly JsonObject[]
  /** Says that the node is done. Throws FormatError `invalid_chunk` when its answer is not. */
  finish(): void
  /** The chunk that holds nothing but usage, for after `finish`. */
  usageChunk(usage: JsonObject): JsonObject
  /** The newest usage the node stated, as the node's socket has bounded it, or null. */
  usage(): JsonObject | null
  /** Characters of text that the answer holds, calls of functions included. */
  textLength(): number
}

/**
 * Reader of one node's chunks, by the rules that verified streams have (attestation/stream), but
 * that the identity is the gateway's: what a node says of that is its own claim.
 *
 * It does NOT show that a node ran the model it offers, nor that the usage it states is true.
 */
export function createNodeChunks(options: {
  /** The model is the one asked for. */
  readonly identity: ChunkIdentity
  readonly choicesAsked: number
}): NodeChunks {
  const { identity, choicesAsked } = options
  const terms = { usageAsked: true, choicesAsked, fallback: identity }
  // The identity that is known stays, also when the node later says something else.
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
