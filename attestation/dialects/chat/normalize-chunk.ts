import { stripProofMembers } from '../../completion-hash.ts'
import { filterMembers, isJsonObject, type Json, type JsonObject } from '../../json/value.ts'
import { withoutPrototypes } from '../../json/without-prototypes.ts'
import {
  arrayOf,
  type ChunkIdentity,
  carryMembers,
  indexOf,
  invalidChunk,
  makeChunk,
  objectOf,
} from './chunk-forms.ts'
import { type ChoiceState, readChoice } from './read-choice.ts'

/** The caller's request for a stream, and fallbacks for members that the provider never sends. */
export type StreamTerms = {
  /** True if the caller set `stream_options.include_usage`. */
  readonly usageAsked: boolean
  /** The caller's `n`. */
  readonly choicesAsked: number
  readonly fallback: ChunkIdentity
}

/** The state after some chunks of a stream. */
export type ChunkState = {
  readonly id: string | null
  readonly created: number | null
  readonly model: string | null
  /** The choices that have begun, by index. */
  readonly choices: ReadonlyMap<number, ChoiceState>
  /** The last usage from the provider. Providers send usage once or in each chunk. */
  readonly usage: JsonObject | null
  /** Members of chunks without choices, for the next chunk with choices. */
  readonly carried: JsonObject
}

export const NO_CHUNKS: ChunkState = {
  id: null,
  created: null,
  model: null,
  choices: new Map(),
  usage: null,
  carried: {},
}

/**
 * Converts a chunk from a provider or a backend (any JSON object; attacker-controlled) into the
 * form of the interface (2.2 and part 6). Returns zero to three chunks that mean the same to all
 * readers (rules.md). Pure. `state.choices` is `before.choices` itself if this chunk does not
 * affect the next chunk. A text may contain half a character (makeWellFormed), but not at its end.
 * Throws FormatError `invalid_chunk` for a wrong shape, a choice that was not requested, more than
 * CARRIED_MEMBERS_MAX carried members, and content after a choice's end; `changed_name`,
 * `changed_type` and `changed_finish` for content that readers would understand differently.
 */
export function normalizeChunk(
  terms: StreamTerms,
  before: ChunkState,
  given: JsonObject,
): { readonly state: ChunkState; readonly chunks: readonly JsonObject[] } {
  // Drops `error: null`, because some readers would end the stream. An error that is not null has
  // already ended the stream. For `type` and `chunk`, see checkChunk.
  const {
    id,
    object: _,
    error: __,
    type: ___,
    chunk: ____,
    created,
    model,
    choices,
    usage,
    ...others
  } = withoutPrototypes(given)
  const rest = withoutOddTexts(stripProofMembers(others))
  const state: ChunkState = {
    ...before,
    id: before.id ?? nameOf(id),
    created:
      before.created ??
      (typeof created === 'number' && Number.isSafeInteger(created) && created > 0
        ? created
        : null),
    model: before.model ?? nameOf(model),
    usage: isJsonObject(usage) ? usage : before.usage,
  }
  let read = before.choices
  const groups: JsonObject[][] = [[], [], []]
  const seen = new Set<number>()
  for (const [position, item] of listOf(choices).entries()) {
    const choice = objectOf(item, 'each choice')
    const index = indexOf(choice.index ?? position, 'a choice')
    // Refuses choices that were not requested: many readers would join their texts to the answer.
    if (index >= Math.max(1, terms.choicesAsked))
      throw invalidChunk('expected no more choices than were asked for')
    if (seen.has(index)) throw invalidChunk('expected each choice once in a chunk')
    seen.add(index)
    const reading = readChoice(read.get(index), { ...choice, index }, (place) =>
      callId(terms.fallback, index, place),
    )
    if (reading.state !== read.get(index)) read = new Map(read).set(index, reading.state)
    for (const [phase, part] of reading.parts.entries())
      if (part !== null) groups[phase]?.push(part)
  }
  const filled = groups.filter((group) => group.length > 0)
  if (filled.length === 0)
    return {
      state: { ...state, choices: read, carried: carryMembers(state.carried, rest) },
      chunks: [],
    }
  const identity = fixIdentity(terms, state)
  const members = { ...state.carried, ...rest }
  return {
    state: { ...identity, choices: read, carried: {} },
    chunks: filled.map((group, place) =>
      makeChunk(identity, { members: place === 0 ? members : {}, choices: group }),
    ),
  }
}

/**
 * Returns the usage chunk after the last chunk: as `visible` (empty choices) if the caller asked
 * for usage, otherwise as `hidden`, so that only the recorded response has the usage. Both are null
 * if the provider stated no usage.
 */
export function finishChunks(
  terms: StreamTerms,
  state: ChunkState,
): { readonly visible: JsonObject | null; readonly hidden: JsonObject | null } {
  const { usage } = state
  if (usage === null) return { visible: null, hidden: null }
  const identity = fixIdentity(terms, state)
  if (!terms.usageAsked)
    return { visible: null, hidden: makeChunk(identity, { members: {}, choices: [], usage }) }
  const visible = makeChunk(identity, { members: state.carried, choices: [], usage })
  return { visible, hidden: null }
}

/**
 * An empty last chunk for a stream that ends without a finish_reason. So every whole stream ends
 * with a chunk to which the enclave adds the proof.
 */
export function closingChunk(terms: StreamTerms, state: ChunkState): JsonObject {
  const [index = 0] = state.choices.keys()
  const choice = { index, delta: { content: '' }, logprobs: null, finish_reason: null }
  return makeChunk(fixIdentity(terms, state), { members: {}, choices: [choice] })
}

export function isFinished({ choices }: ChunkState): boolean {
  return (
    choices.size > 0 && [...choices.values()].every(({ finishReason }) => finishReason !== null)
  )
}

/** Returns null for text that cannot be an id or the name of a model. */
function nameOf(value: Json | undefined): string | null {
  return typeof value === 'string' && NAME.test(value) ? value : null
}

/** An id or the name of a model. Providers use at most a hundred characters. */
const NAME = /^[^\p{Cc}\p{Cs}]{1,256}$/u

const SDK_TEXTS = ['system_fingerprint', 'service_tier']

/** Leaves out members in SDK_TEXTS that are not texts, because SDKs expect texts. */
export function withoutOddTexts(members: JsonObject): JsonObject {
  return filterMembers(
    members,
    (name, value) => !SDK_TEXTS.includes(name) || typeof (value ?? '') === 'string',
  )
}

/** OpenAI accepts ids of at most 40 characters. */
export function callId({ id }: Pick<ChunkIdentity, 'id'>, choice: number, place: number): string {
  return `call_${id.replace(/[^0-9a-z]/gi, '').slice(-20)}_${choice}_${place}`
}

function listOf(choices: Json | undefined): readonly Json[] {
  return choices === undefined || choices === null ? [] : arrayOf(choices, 'choices')
}

function fixIdentity({ fallback }: StreamTerms, state: ChunkState): ChunkState & ChunkIdentity {
  return {
    ...state,
    id: state.id ?? fallback.id,
    created: state.created ?? fallback.created,
    model: state.model ?? fallback.model,
  }
}
