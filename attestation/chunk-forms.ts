import { FormatError } from './errors.ts'
import { formsOf } from './json/forms.ts'
import type { Json, JsonObject } from './json/value.ts'

/*
 * The forms of chunks that all programs share. The enclave and the gateway convert chunks from
 * other senders into this form. Verifiers check it. Each program decides for itself which other
 * forms it accepts.
 */

/**
 * Readers keep choices and calls in arrays, which lose items with an index above 2^32-2. Providers
 * send indexes below 128.
 */
export const INDEX_MAX = 1_023

/**
 * The most members that may wait for the next chunk with choices. They come from chunks without
 * choices. Providers and nodes send one or two.
 */
export const CARRIED_MEMBERS_MAX = 64

/** Members that are equal in all chunks of a stream. */
export type ChunkIdentity = {
  readonly id: string
  /** Unix seconds. */
  readonly created: number
  readonly model: string
}

/** Makes a chunk (interface 2.2). `members` are its additional members. */
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
 * Collects members of chunks without choices for the next chunk with choices. Their number is
 * limited, because they are copied for each such chunk, and a sender may send such chunks without
 * end. Throws FormatError `invalid_chunk`.
 */
export function carryMembers(carried: JsonObject, members: JsonObject): JsonObject {
  const both = { ...carried, ...members }
  if (Object.keys(both).length > CARRIED_MEMBERS_MAX)
    throw invalidChunk(`expected at most ${CARRIED_MEMBERS_MAX} members in chunks without choices`)
  return both
}

/** Return an array or an object. Throw FormatError `invalid_chunk` for any other value. */
export const { arrayOf, objectOf } = formsOf('invalid_chunk')

/** The index, 0 to INDEX_MAX. Throws FormatError `invalid_chunk`, whose message names `owner`. */
export function indexOf(value: Json | undefined, owner: string): number {
  if (typeof value !== 'number' || !Number.isInteger(value) || value < 0 || value > INDEX_MAX)
    throw invalidChunk(`expected the index of ${owner} to be a whole number from 0 to ${INDEX_MAX}`)
  return value
}

/** The error for a chunk that has a wrong form. */
export function invalidChunk(message: string): FormatError {
  return new FormatError('invalid_chunk', message)
}
