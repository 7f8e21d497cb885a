import { FormatError } from './errors.ts'
import { formsOf } from './json/forms.ts'
import type { Json, JsonObject } from './json/value.ts'

/*
 * Forms of a stream's chunks that are the same for all programs. The enclave and the gateway bring
 * the chunks that others send into this form. Verifiers check it. Each program decides for itself
 * which other forms it accepts.
 */

/**
 * Readers keep choices and calls in arrays, which lose items with an index above 2^32-2. Providers
 * stay below 128.
 */
export const INDEX_MAX = 1_023

/**
 * Limit for the members of chunks without choices. They wait for the next chunk with choices.
 * Providers and nodes send one or two.
 */
export const CARRIED_MEMBERS_MAX = 64

/** Members that are equal in all chunks of a stream. */
export type ChunkIdentity = {
  readonly id: string
  /** Unix seconds. */
  readonly created: number
  readonly model: string
}

/** A chunk of the interface, 2.2. `members` are its additional members. */
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
 * Collects members of chunks without choices for the next chunk with choices. Limited: they are
 * copied for each chunk without choices, and such chunks may come without end. Throws FormatError
 * `invalid_chunk`.
 */
export function carryMembers(carried: JsonObject, members: JsonObject): JsonObject {
  const both = { ...carried, ...members }
  if (Object.keys(both).length > CARRIED_MEMBERS_MAX)
    throw invalidChunk(`expected at most ${CARRIED_MEMBERS_MAX} members in chunks without choices`)
  return both
}

/** Give an array or an object. Throw FormatError `invalid_chunk` for any other value. */
export const { arrayOf, objectOf } = formsOf('invalid_chunk')

/** The index, 0 to INDEX_MAX. Throws FormatError `invalid_chunk`, which names `owner`. */
export function indexOf(value: Json | undefined, owner: string): number {
  if (typeof value !== 'number' || !Number.isInteger(value) || value < 0 || value > INDEX_MAX)
    throw invalidChunk(`expected the index of ${owner} to be a whole number from 0 to ${INDEX_MAX}`)
  return value
}

/** The error for a chunk that does not have its form. */
export function invalidChunk(message: string): FormatError {
  return new FormatError('invalid_chunk', message)
}
