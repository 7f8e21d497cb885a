import { isProofMember } from '../../../attestation/completion-hash.ts'
import { FormatError } from '../../../attestation/errors.ts'
import {
  isJsonArray,
  isJsonObject,
  type Json,
  type JsonObject,
  setMember,
} from '../../../attestation/json/value.ts'
import { type ChoiceState, newChoice, readChoice } from './choices.ts'

/** Members of choice-less chunks that wait for the next chunk. Backends send one or two. */
export const CARRIED_MEMBERS_MAX = 64

/** What a caller's chunks say throughout: the gateway's words, because a node's are its own claim. */
export type StreamIdentity = {
  readonly id: string
  /** Unix seconds. */
  readonly created: number
  /** The model that was asked for; the node was chosen because it serves it. */
  readonly model: string
}

/** Brings the chunks of one node's answer into the form that callers are promised. Belongs to one answer. */
export type NodeChunks = {
  /**
   * The caller's chunks for one of the node's (attacker-controlled), none to three. Throws FormatError `invalid_chunk`
   * for what cannot be part of an answer.
   */
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
 * Reader of one node's chunks. The form is that of the interface, 2.2 and part 6: one id, created and model; each
 * choice begins with role `assistant` and empty content and ends with its finish_reason and empty content; usage is null;
 * finish_reason, logprobs and tool calls have legal values only. Unknown members pass, but for those that stand for a proof, which
 * only verified answers have. A choice beyond the `choicesAsked` is refused.
 *
 * It does NOT show that a node ran the model it offers, nor that the usage it states is true.
 */
export function createNodeChunks(options: {
  readonly identity: StreamIdentity
  readonly choicesAsked: number
  /** A new id for a tool call that came without one. */
  readonly makeCallId: () => string
}): NodeChunks {
  const { identity, choicesAsked, makeCallId } = options
  const choices = new Map<number, ChoiceState>()
  let usage: JsonObject | null = null
  let carried: JsonObject = {}
  let textLength = 0

  function push(told: JsonObject): readonly JsonObject[] {
    const chunk = withoutPrototypes(told) as JsonObject
    const { choices: given, usage: claim } = chunk
    if (isJsonObject(claim)) usage = claim
    const members = readMembers(chunk)
    if (!isJsonArray(given) || given.length === 0) {
      carried = carry(carried, members)
      return []
    }
    const groups: readonly JsonObject[][] = [[], [], []]
    for (const choice of given) {
      const { parts, length } = readChoice(stateOf(choice), choice, makeCallId)
      textLength += length
      for (const [position, part] of parts.entries()) if (part !== null) groups[position]?.push(part)
    }
    return makeChunks(groups, members)
  }

  function stateOf(choice: Json): ChoiceState {
    const index = isJsonObject(choice) ? choice.index : undefined
    if (typeof index !== 'number' || !Number.isInteger(index) || index < 0 || index >= choicesAsked)
      throw new FormatError('invalid_chunk', `expected the index of a choice from 0 to ${choicesAsked - 1}`)
    const state = choices.get(index) ?? newChoice(index)
    choices.set(index, state)
    return state
  }

  function makeChunks(groups: readonly JsonObject[][], members: JsonObject): readonly JsonObject[] {
    const filled = groups.filter((group) => group.length > 0)
    if (filled.length === 0) return []
    const all = { ...carried, ...members }
    carried = {}
    return filled.map((group) => makeChunk(all, group, null))
  }

  function makeChunk(
    members: JsonObject,
    group: readonly JsonObject[],
    stated: JsonObject | null,
  ): JsonObject {
    const { id, created, model } = identity
    return { ...members, id, object: 'chat.completion.chunk', created, model, choices: group, usage: stated }
  }

  function finish(): void {
    if (choices.size === 0) throw new FormatError('invalid_chunk', 'expected at least one choice')
    for (const { isFinished, index } of choices.values())
      if (!isFinished) throw new FormatError('invalid_chunk', `expected a finish_reason of choice ${index}`)
  }

  return {
    push,
    finish,
    usageChunk: (stated) => makeChunk(carried, [], stated),
    usage: () => usage,
    textLength: () => textLength,
  }
}

/** What is left of a chunk's own members: those the interface knows have its types, a proof's are gone. */
function readMembers(chunk: JsonObject): JsonObject {
  const { error } = chunk
  if (error !== undefined && error !== null)
    throw new FormatError('invalid_chunk', 'expected a chunk, got an error')
  const members: Record<string, Json> = {}
  for (const [name, value] of Object.entries(chunk))
    if (!OURS.has(name) && !isProofMember(name) && (isTextOrNull(value) || !OWN_TEXTS.has(name)))
      setMember(members, name, value)
  return members
}

/** Members that the caller's chunks have from us. */
const OURS: ReadonlySet<string> = new Set([
  ...['id', 'object', 'created', 'model', 'choices', 'usage', 'error'],
])

const OWN_TEXTS: ReadonlySet<string> = new Set(['system_fingerprint', 'service_tier'])

function isTextOrNull(value: Json): boolean {
  return value === null || typeof value === 'string'
}

/** Bounded: a node may send chunks without choices without end, each with members of other names. */
function carry(carried: JsonObject, members: JsonObject): JsonObject {
  const both = { ...carried, ...members }
  if (Object.keys(both).length > CARRIED_MEMBERS_MAX)
    throw new FormatError(
      'invalid_chunk',
      `expected at most ${CARRIED_MEMBERS_MAX} members in chunks without choices`,
    )
  return both
}

/**
 * The value without members called `__proto__`, at any depth: clients that assign members one by one
 * would give an object a prototype of the node's. Gives `value` itself when it has none.
 */
function withoutPrototypes(value: Json): Json {
  if (!hasPrototypes(value)) return value
  if (isJsonArray(value)) return value.map(withoutPrototypes)
  if (!isJsonObject(value)) return value
  const kept = Object.entries(value).filter(([name]) => name !== '__proto__')
  return Object.fromEntries(kept.map(([name, member]) => [name, withoutPrototypes(member)]))
}

/** Allocates nothing, because nearly every chunk has none. */
function hasPrototypes(value: Json | undefined): boolean {
  if (isJsonArray(value)) return value.some(hasPrototypes)
  if (!isJsonObject(value)) return false
  for (const name in value) if (name === '__proto__' || hasPrototypes(value[name])) return true
  return false
}
