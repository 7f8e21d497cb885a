import { createHash } from 'node:crypto'
import { DEMANDS_MEMBER, type Demands } from '#attestation/demands.ts'
import { hashedHeaders, statedHeaders } from '#attestation/dialects/call-request.ts'
import type { Dialect } from '#attestation/dialects/dialects.ts'
import { FormatError } from '#attestation/errors.ts'
import { canonicalizeJson } from '#attestation/json/canonical.ts'
import { isJsonObject, type JsonObject } from '#attestation/json/value.ts'
import { CallFault } from '../call-fault.ts'
import { readJson } from '../protocol/request-faults.ts'
import type { CallForm } from './call-forms.ts'
import { removeMember } from './edit-body.ts'

export type ParsedRequest = {
  readonly form: CallForm
  readonly body: JsonObject
  /** The hashed headers of the call. */
  readonly headers: Readonly<Record<string, string>>
  readonly forwardedHeaders: Readonly<Record<string, string>>
  /** Canonical JSON text of the request (Dialect.hashedRequest). It is hashed and echoed. */
  readonly canonicalRequest: string
  /** SHA-256 of `canonicalRequest`. */
  readonly requestDigest: Uint8Array
  readonly model: string
  readonly demands: Demands
  readonly isStream: boolean
  /**
   * The body that the caller sent, without the member `affidavit`. The call's CallForm may add
   * members that the provider needs.
   */
  readonly forwarded: Uint8Array
  /** SHA-256 (hex) of `forwarded`. */
  readonly forwardedHash: string
}

/**
 * Parses a request body (attacker-controlled bytes): an object with a model and the members that
 * its form requires. Refuses JSON that canonical JSON cannot represent exactly, and members that
 * hide a part of the prompt. The provider checks all other members. The caller's demands are not
 * forwarded. `json` is the body's JSON, if already parsed. Throws CallFault `invalid_request`.
 */
export function parseRequest(
  bytes: Uint8Array,
  {
    form,
    headers: given = {},
    json: body = parseBody(bytes),
  }: {
    readonly form: CallForm
    readonly headers?: Readonly<Record<string, string>> | undefined
    readonly json?: JsonObject
  },
): ParsedRequest {
  const { dialect } = form
  const { model, stream } = body
  if (typeof model !== 'string') throw invalid(['model'], 'expected model to be a string')
  form.check(body)
  const hidden = dialect.findHidden(body)
  if (hidden !== null)
    throw invalid(hidden.path, `${hidden.path.join('.')} cannot be verified: ${hidden.why}`)
  const { headers, demands, canonicalRequest } = readParts(dialect, body, given)
  const isStream = stream === true
  // removeMember searches the whole body, so it runs only if the member exists.
  const own = Object.hasOwn(body, DEMANDS_MEMBER) ? removeMember(bytes, DEMANDS_MEMBER) : bytes
  const forwarded = isStream ? form.forwardStream(own, body) : own
  return {
    form,
    body,
    headers,
    forwardedHeaders: statedHeaders(headers),
    canonicalRequest,
    requestDigest: createHash('sha256').update(canonicalRequest).digest(),
    model,
    demands,
    isStream,
    forwarded,
    forwardedHash: createHash('sha256').update(forwarded).digest('hex'),
  }
}

function readParts(
  { name, requestOf, demandsOf, hashedRequest }: Dialect,
  body: JsonObject,
  given: Readonly<Record<string, string>>,
) {
  try {
    const headers = hashedHeaders(name, body, given)
    const request = requestOf(body, headers)
    return {
      headers,
      demands: demandsOf(request),
      canonicalRequest: canonicalizeJson(hashedRequest(request)),
    }
  } catch (error) {
    if (!(error instanceof FormatError)) throw error
    throw invalid([DEMANDS_MEMBER], error.message)
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

function invalid(path: readonly (string | number)[], message: string): CallFault {
  return new CallFault('invalid_request', message, { loc: ['body', ...path] })
}
