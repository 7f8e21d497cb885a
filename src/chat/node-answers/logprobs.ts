import { FormatError } from '../../../attestation/errors.ts'
import { isJsonArray, isJsonObject, type Json, type JsonObject } from '../../../attestation/json/value.ts'

/**
 * Log probabilities of a choice (interface 2.2) out of a node's (attacker-controlled): content and refusal, each a list of entries or null.
 * Null when they say nothing. Throws FormatError `invalid_chunk`.
 */
export function readLogprobs(value: Json | undefined): JsonObject | null {
  if (value === undefined || value === null) return null
  if (!isJsonObject(value)) throw invalid('expected logprobs to be an object or null')
  const { content, refusal, ...rest } = value
  const read = { ...rest, content: readEntries(content), refusal: readEntries(refusal) }
  return read.content === null && read.refusal === null ? null : read
}

function readEntries(value: Json | undefined): readonly JsonObject[] | null {
  if (value === undefined || value === null) return null
  if (!isJsonArray(value)) throw invalid('expected content and refusal of logprobs to be lists or null')
  return value.length === 0 ? null : value.map(readEntry)
}

function readEntry(value: Json): JsonObject {
  const entry = readToken(value)
  const top = entry.top_logprobs ?? []
  if (!isJsonArray(top)) throw invalid('expected top_logprobs to be a list')
  return { ...entry, top_logprobs: top.map(readToken) }
}

function readToken(value: Json): JsonObject {
  if (!isJsonObject(value)) throw invalid('expected each log probability to be an object')
  const { token, logprob, bytes = null } = value
  if (typeof token !== 'string') throw invalid('expected token to be a text')
  if (typeof logprob !== 'number' || !Number.isFinite(logprob))
    throw invalid('expected logprob to be a number')
  if (bytes !== null && !(isJsonArray(bytes) && bytes.every(Number.isInteger)))
    throw invalid('expected bytes to be a list of whole numbers or null')
  return { ...value, bytes }
}

function invalid(message: string): FormatError {
  return new FormatError('invalid_chunk', message)
}
