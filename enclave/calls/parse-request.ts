import { createHash } from 'node:crypto'
import { asksForUsage, stripUnsetMembers } from '../../attestation/completion-hash.ts'
import { DEMANDS_MEMBER, type Demands, demandsOf } from '../../attestation/demands.ts'
import { FormatError } from '../../attestation/errors.ts'
import { canonicalizeJson } from '../../attestation/json/canonical.ts'
import { isJsonArray, isJsonObject, type JsonObject } from '../../attestation/json/value.ts'
import { CallFault } from '../call-fault.ts'
import { readJson } from '../protocol/request-faults.ts'
import { removeMember, setIncludeUsage } from './edit-body.ts'

/** A caller's request, and the body for the provider. */
export type ParsedRequest = {
  /** The request as the caller wrote it. */
  readonly request: JsonObject
  /** Canonical JSON text of the request without unset members. It is hashed and echoed. */
  readonly canonicalRequest: string
  /** SHA-256 of `canonicalRequest`. */
  readonly requestDigest: Uint8Array
  readonly model: string
  readonly demands: Demands
  readonly isStream: boolean
  /** True if the caller requested usage in the stream. */
  readonly usageAsked: boolean
  /** The value of `n`. Default 1. */
  readonly choicesAsked: number
  /**
   * The caller's own bytes with two changes: a stream gets `stream_options.include_usage`, and the
   * member `affidavit` is removed.
   */
  readonly forwarded: Uint8Array
  /** SHA-256 (hex) of `forwarded`. */
  readonly forwardedHash: string
}

/**
 * Parses a request body (attacker-controlled bytes): JSON that canonical JSON represents exactly,
 * an object with a model and messages. The member `affidavit` contains the caller's demands on the
 * enclave (demandsOf), and is not forwarded. The provider checks all other members. `request` is
 * the body's JSON, if already parsed. Throws CallFault `invalid_request`.
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
  // The search reads the whole body, so it runs only if the member exists.
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
  const read = readJson(body)
  if ('fault' in read) {
    const { msg, loc } = read.fault
    throw new CallFault('invalid_request', msg, { loc })
  }
  if (isJsonObject(read.json)) return read.json
  throw new CallFault('invalid_request', 'expected a JSON object', { loc: ['body'] })
}

function invalid(member: string, message: string): CallFault {
  return new CallFault('invalid_request', message, { loc: ['body', member] })
}
