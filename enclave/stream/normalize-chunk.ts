import {
  arrayOf,
  type ChunkIdentity,
  carryMembers,
  indexOf,
  invalidChunk,
  makeChunk,
  objectOf,
} from '../../attestation/chunk-forms.ts'
import { stripProofMembers } from '../../attestation/completion-hash.ts'
import { isJsonObject, type Json, type JsonObject } from '../../attestation/json/value.ts'

/**
 * What the caller asked of a stream, and what stands in for members that the provider never sends.
 */
export type StreamTerms = {
  /** The caller set `stream_options.include_usage` himself. */
  readonly usageAsked: boolean
  /** The caller's `n`. */
  readonly choicesAsked: number
  readonly fallback: ChunkIdentity
}

/** What must be known of the chunks before in order to bring the next one into form. */
export type ChunkState = {
  readonly id: string | null
  readonly created: number | null
  readonly model: string | null
  /** Indexes of the choices whose first chunk was given, and of those that have a finish_reason. */
  readonly begun: ReadonlySet<number>
  readonly finished: ReadonlySet<number>
  /** The newest usage the provider stated. Some state it once, some in each chunk. */
  readonly usage: JsonObject | null
  /** Members of chunks without choices, which the next chunk with choices takes along. */
  readonly carried: JsonObject
}

/** The state before any chunk. */
export const NO_CHUNKS: ChunkState = {
  id: null,
  created: null,
  model: null,
  begun: new Set(),
  finished: new Set(),
  usage: null,
  carried: {},
}

/**
 * Brings a provider's chunk (any JSON object; attacker-controlled) into the form of interface 2.2
 * and part 6, as zero, one or two chunks: one id, created and model throughout; the first chunk of
 * a choice has role and empty content and nothing else; later ones have no role; the one with the
 * finish_reason has content, if only empty; logprobs and finish_reason are null when missing; usage
 * is null, and kept for finishChunks; a choice's `message` and members that only the enclave or the
 * gateway may speak (the proof's) are removed. A chunk without choices gives none, so no
 * choice-less chunk comes before the first one. Other unknown members pass.
 *
 * Pure. Throws FormatError `invalid_chunk` when choices, a choice, its index, delta or
 * finish_reason have the wrong shape, an index is above INDEX_MAX, or more members wait than
 * CARRIED_MEMBERS_MAX.
 */
export function normalizeChunk(
  terms: StreamTerms,
  before: ChunkState,
  chunk: JsonObject,
): { readonly state: ChunkState; readonly chunks: readonly JsonObject[] } {
  // An error that is one ended the stream before; a null one would end it for readers that ask only
  // whether it is there.
  const { id, object: _, error: __, created, model, choices, usage, ...others } = chunk
  const rest = stripProofMembers(others)
  const state: ChunkState = {
    ...before,
    id: before.id ?? (typeof id === 'string' && id !== '' ? id : null),
    created:
      before.created ??
      (typeof created === 'number' && Number.isSafeInteger(created) && created > 0
        ? created
        : null),
    model: before.model ?? (typeof model === 'string' && model !== '' ? model : null),
    usage: isJsonObject(usage) ? usage : before.usage,
  }
  const parsed = parseChoices(choices)
  // Many readers take the text of every choice for one answer, and so may be shown one that was
  // never given.
  if (parsed.some(({ index }) => index >= Math.max(1, terms.choicesAsked)))
    throw invalidChunk('expected no more choices than were asked for')
  if (parsed.length === 0)
    return { state: { ...state, carried: carryMembers(state.carried, rest) }, chunks: [] }
  return emitChoices({ terms, state: fixIdentity(terms, state), choices: parsed, rest })
}

/**
 * What follows the last chunk: `visible` is the usage chunk (empty choices) that a caller gets who
 * asked for it, `hidden` the same for the record alone. Both null when the provider stated no
 * usage. With `visible`, the caller's chunks assemble to exactly the recorded response; without it,
 * to that response without its usage.
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
 * A last chunk that says nothing, for a stream whose last one had no finish_reason. With it, every
 * whole stream ends with a chunk that was held back for the proof.
 */
export function closingChunk(terms: StreamTerms, state: ChunkState): JsonObject {
  const [index = 0] = state.begun
  const choice = { index, delta: { content: '' }, logprobs: null, finish_reason: null }
  return makeChunk(fixIdentity(terms, state), { members: {}, choices: [choice] })
}

/**
 * Whether a stream that ended cleanly but without `[DONE]` is complete: all choices asked for have
 * begun, and all that have begun have a finish_reason.
 */
export function isFinished(terms: StreamTerms, state: ChunkState): boolean {
  return (
    state.begun.size >= Math.max(1, terms.choicesAsked) && state.finished.size === state.begun.size
  )
}

type ParsedChoice = {
  readonly index: number
  readonly delta: JsonObject
  readonly finishReason: string | null
  readonly logprobs: Json
  readonly rest: JsonObject
}

function parseChoices(choices: Json | undefined): readonly ParsedChoice[] {
  if (choices === undefined || choices === null) return []
  return arrayOf(choices, 'choices').map(parseChoice)
}

function parseChoice(choice: Json, position: number): ParsedChoice {
  // No reader of a stream assembles a whole message, but some would show it.
  const { message: _, ...read } = objectOf(choice, 'each choice')
  const { index: givenIndex, delta: givenDelta, finish_reason: reason, logprobs, ...rest } = read
  const index = indexOf(givenIndex ?? position, 'a choice')
  const delta = objectOf(givenDelta ?? {}, 'delta')
  const finishReason = reason === undefined || reason === '' ? null : reason
  if (finishReason !== null && typeof finishReason !== 'string')
    throw invalidChunk('expected finish_reason to be a string or null')
  // Together states one number there, which no reader assembles.
  return { index, delta, finishReason, logprobs: isJsonObject(logprobs) ? logprobs : null, rest }
}

function emitChoices(input: {
  readonly terms: StreamTerms
  readonly state: ChunkState & ChunkIdentity
  readonly choices: readonly ParsedChoice[]
  readonly rest: JsonObject
}): { readonly state: ChunkState; readonly chunks: readonly JsonObject[] } {
  const { state, choices } = input
  const opening: JsonObject[] = []
  const following: JsonObject[] = []
  let { begun, finished } = state
  for (const choice of choices) {
    const isFirst = !begun.has(choice.index)
    if (isFirst) begun = new Set([...begun, choice.index])
    if (choice.finishReason !== null && !finished.has(choice.index))
      finished = new Set([...finished, choice.index])
    if (isFirst) opening.push(openChoice(choice))
    if (!isFirst || !isEmptyOpening(choice)) following.push(continueChoice(choice))
  }
  const members = { ...state.carried, ...input.rest }
  const chunks = [opening, following]
    .filter((group) => group.length > 0)
    .map((group) => makeChunk(state, { members, choices: group }))
  return { state: { ...state, begun, finished, carried: {} }, chunks }
}

/** Whether the provider's first delta of a choice says no more than that the choice begins. */
function isEmptyOpening({ delta, finishReason, logprobs }: ParsedChoice): boolean {
  const { role: _, ...rest } = delta
  return (
    finishReason === null &&
    logprobs === null &&
    Object.values(rest).every((value) => value === null || value === '')
  )
}

function openChoice(choice: ParsedChoice): JsonObject {
  const { index, delta, rest } = choice
  const role = { role: 'assistant', content: '' }
  const opening = { index, logprobs: null, finish_reason: null }
  if (!isEmptyOpening(choice)) return { ...opening, delta: role }
  return { ...rest, ...opening, delta: { ...delta, ...role } }
}

function continueChoice({ index, delta, finishReason, logprobs, rest }: ParsedChoice): JsonObject {
  const { role: _, ...unnamed } = delta
  // Providers end with an empty delta, which clients of the interface (part 6) read `content` of.
  const given: JsonObject =
    finishReason === null ? unnamed : { ...unnamed, content: unnamed.content ?? '' }
  return { ...rest, index, delta: given, logprobs, finish_reason: finishReason }
}

/**
 * Settles id, created and model: what no chunk has said by now comes from the fallback, for good.
 */
function fixIdentity({ fallback }: StreamTerms, state: ChunkState): ChunkState & ChunkIdentity {
  return {
    ...state,
    id: state.id ?? fallback.id,
    created: state.created ?? fallback.created,
    model: state.model ?? fallback.model,
  }
}
