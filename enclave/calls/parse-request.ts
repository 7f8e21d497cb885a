import { createHash } from 'node:crypto'
import { asksForUsage, stripUnsetMembers } from '../../attestation/completion-hash.ts'
import { DEMANDS_MEMBER, type Demands, demandsOf } from '../../attestation/demands.ts'
import { FormatError } from '../../attestation/errors.ts'
import { canonicalizeJson } from '../../attestation/json/canonical.ts'
import { JsonError, type JsonErrorCode } from '../../attestation/json/json-error.ts'
import { parseStrictJson } from '../../attestation/json/parse-strict.ts'
import {
  isJsonArray,
  isJsonObject,
  type Json,
  type JsonObject,
} from '../../attestation/json/value.ts'
import { CallFault } from '../call-fault.ts'
import { removeMember, setIncludeUsage } from './edit-body.ts'

/** A caller's request, and what is sent on. */
export type ParsedRequest = {
  /** As the caller wrote it. */
  readonly request: JsonObject
  /** Canonical JSON text of it without unset members: what is hashed and echoed. */
  readonly canonicalRequest: string
  /** SHA-256 of that text. */
  readonly requestDigest: Uint8Array
  readonly model: string
  readonly demands: Demands
  readonly isStream: boolean
  /** The caller asked for usage in the stream himself. */
  readonly usageAsked: boolean
  /** `n`, 1 when it is missing. */
  readonly choicesAsked: number
  /**
   * The caller's own bytes, but for `stream_options.include_usage` on a stream, and without
   * `affidavit`.
   */
  readonly forwarded: Uint8Array
  /** SHA-256 (hex) of `forwarded`. */
  readonly forwardedHash: string
}

/**
 * The request that a body is (attacker-controlled bytes): JSON that canonical JSON represents
 * faithfully, an object with a model and messages. The member `affidavit` is what the caller
 * demands of the enclave (demandsOf), and is not sent on. Everything else is between caller and
 * provider.
 * `request`: the JSON of the body, where that was read before. Throws CallFault `invalid_request`.
 */
export function parseRequest(
  body: Uint8Array,
  request: JsonObject = parseBody(body),
): ParsedRequest {
  const { model, messages, stream, stream_options: options, n } = request
  if (typeof model !== 'string') throw invalid('model', 'expected model to be a string')
  if (!isJsonArray(messages)) throw invalid('messages', 'expected messages to be an array')
  const demands = readDemands(request)
  const isStream = stream === true
  const usageAsked = asksForUsage(request)
  // Looked for in the bytes only where it is: that reads all of the body once more.
  const own = Object.hasOwn(request, DEMANDS_MEMBER) ? removeMember(body, DEMANDS_MEMBER) : body
  const forwarded = isStream && !usageAsked ? setIncludeUsage(own, options ?? null) : own
  const canonicalRequest = canonicalizeJson(stripUnsetMembers(request))
  return {
    request,
    canonicalRequest,
    requestDigest: createHash('sha256').update(canonicalRequest).digest(),
    model,
    demands,
    isStream,
    usageAsked,
    choicesAsked: typeof n === 'number' && n >= 1 ? n : 1,
    forwarded,
    forwardedHash: createHash('sha256').update(forwarded).digest('hex'),
  }
}

function readDemands(request: JsonObject): Demands {
  try {
    return demandsOf(request) ?? {}
  } catch (error) {
    if (!(error instanceof FormatError)) throw error
    throw invalid(DEMANDS_MEMBER, error.message)
  }
}

function parseBody(body: Uint8Array): JsonObject {
  const value = readJson(body)
  if (!isJsonObject(value))
    throw new CallFault('invalid_request', 'expected a JSON object', { loc: ['body'] })
  return value
}

function readJson(body: Uint8Array): Json {
  try {
    return parseStrictJson(body)
  } catch (error) {
    if (!(error instanceof JsonError)) throw error
    throw new CallFault('invalid_request', EXPECTED[error.code], { loc: ['body', ...error.path] })
  }
}

const EXPECTED: Readonly<Record<JsonErrorCode, string>> = {
  invalid_utf8: 'expected the body to be UTF-8',
  syntax: 'expected the body to be JSON',
  duplicate_key: 'expected each member of an object once',
  unsafe_integer:
    'expected numbers that a double holds as they are written, such as integers up to 2^53-1',
  inexact_number: 'expected numbers that a double holds as they are written',
  number_overflow: 'expected numbers of at most 1.7976931348623157e308',
  lone_surrogate: 'expected strings without half surrogate pairs',
  too_deep: 'expected less deeply nested JSON',
  too_many: 'too many arrays, objects, members or items',
}

function invalid(member: string, message: string): CallFault {
  return new CallFault('invalid_request', message, { loc: ['body', member] })
}
