import { FormatError } from '../../errors.ts'
import { formsOf } from '../../json/forms.ts'
import type { Json, JsonObject } from '../../json/value.ts'

/** The enclave and the gateway convert chunks into these forms. Verifiers check the forms. */

/**
 * Readers keep choices and calls in arrays. An array loses items with an index above 2^32-2.
 * Providers send indexes below 128.
 */
export const INDEX_MAX = 1_023

/** Maximum number of members that carryMembers collects. Providers and nodes send one or two. */
export const CARRIED_MEMBERS_MAX = 64

/** Members that are equal in all chunks of a stream. */
export type ChunkIdentity = {
  readonly id: string
  /** Unix seconds. */
  readonly created: number
  readonly model: string
}

export function makeChunk(
  { id, created, model }: ChunkIdentity,
  {
    members,
    choices,
    usage = null,
  }: {
    readonly members: JsonObject
    readonly choices: readonly JsonObject[]
    readonly usage?: JsonObject | null
  },
): JsonObject {
  return { ...members, id, object: 'chat.completion.chunk', created, model, choices, usage }
}

/**
 * Collects the members of chunks without choices, to add them to the next chunk with choices.
 * Throws FormatError `invalid_chunk` for too many members, because a sender can send such chunks
 * without end.
 */
export function carryMembers(carried: JsonObject, members: JsonObject): JsonObject {
  const both = { ...carried, ...members }
  if (Object.keys(both).length > CARRIED_MEMBERS_MAX)
    throw invalidChunk(`expected at most ${CARRIED_MEMBERS_MAX} members in chunks without choices`)
  return both
}

/** Throw FormatError `invalid_chunk`. */
export const { arrayOf, objectOf } = formsOf('invalid_chunk')

/**
 * Reads an index from 0 to INDEX_MAX. Throws FormatError `invalid_chunk`, whose message names
 * `owner`.
 */
export function indexOf(value: Json | undefined, owner: string): number {
  if (typeof value !== 'number' || !Number.isInteger(value) || value < 0 || value > INDEX_MAX)
    throw invalidChunk(`expected the index of ${owner} to be a whole number from 0 to ${INDEX_MAX}`)
  return value
}

export function invalidChunk(message: string): FormatError {
  return new FormatError('invalid_chunk', message)
}
