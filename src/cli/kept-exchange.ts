import {
  compareExchange,
  type ExchangeCheck,
  type KeptAnswer,
  type KeptExchange,
  responseOf,
} from '../../attestation/compare-exchange.ts'
import { hashCompletion, stripUnsetMembers } from '../../attestation/completion-hash.ts'
import { FormatError } from '../../attestation/errors.ts'
import { isJsonObject, type Json, type JsonObject, memberOf } from '../../attestation/json/value.ts'
import { CliError, EXIT_CODES } from './exit-codes.ts'
import { readSource } from './read-source.ts'
import { readKeptAnswer, readKeptRequest } from './read-subjects.ts'
import { type ToldExchange, tellExchange } from './told-exchange.ts'

/** The files of what a caller kept, as commander gives them. */
export type KeptOptions = { readonly request?: string; readonly answer?: string }

/** What a caller kept, as read: the request's bytes too, for a source that is an answer itself. */
export type KeptFiles = { readonly requestBody: Uint8Array | null; readonly answer: KeptAnswer | null }

/**
 * Reads the files of what a caller kept. Throws CliError for those that cannot be read or are none,
 * and when standard input is named more than once, `source` included.
 */
export async function readKeptFiles(source: string, { request, answer }: KeptOptions): Promise<KeptFiles> {
  if ([source, request, answer].filter((place) => place === '-').length > 1)
    throw new CliError('expected standard input (-) to be named once', EXIT_CODES.usage)
  const read = (place: string) => readSource(place, { apiKey: null, stdin: process.stdin })
  const requestBody = request === undefined ? null : await read(request)
  return { requestBody, answer: answer === undefined ? null : readKeptAnswer(await read(answer)) }
}

/** What is to be compared with evidence. */
export function keptOf({ requestBody, answer }: KeptFiles): KeptExchange {
  return {
    ...(requestBody === null ? {} : { request: readKeptRequest(requestBody) }),
    ...(answer === null ? {} : { answer }),
  }
}

/** What came of comparing what a caller kept with evidence, and what was asked and said. */
export type ComparedExchange = {
  readonly checks: readonly ExchangeCheck[]
  readonly told: ToldExchange
}

/**
 * Compares what a caller kept with the record of the evidence, and tells the completion: as the
 * evidence has it; where that left a part out, as the caller kept it, once it was found to be the
 * same.
 */
export function compareKept(evidence: Json, kept: KeptExchange): ComparedExchange {
  const record = isJsonObject(evidence) ? evidence : {}
  const checks = compareExchange(record, kept)
  return {
    checks,
    told: tellExchange({
      request: objectOf(memberOf(record, 'request')) ?? sameRequest(checks, kept),
      response: objectOf(memberOf(record, 'response')) ?? sameResponse(checks, kept),
    }),
  }
}

/**
 * Tells an answer with the request that it answers: both are the caller's own, and have checks of
 * their own.
 */
export function tellKept(
  answer: Json,
  given: { readonly request: Json; readonly chunks: readonly JsonObject[] | undefined },
): ComparedExchange {
  const { request, chunks } = given
  const kept: KeptAnswer = chunks === undefined ? { kind: 'whole', answer } : { kind: 'stream', chunks }
  return { checks: [], told: tellExchange({ request: objectOf(request), response: readResponse(kept) }) }
}

/**
 * Gives the record with its left-out parts taken from what a caller kept, so that they can be
 * checked. A part is taken only when it has the hash that the evidence has of it.
 */
export function fillRecord(record: JsonObject, kept: KeptExchange): JsonObject {
  const checks = compareExchange(record, kept)
  const response = sameResponse(checks, kept)
  // Chunks without the usage that nobody asked for are the evidence's, but do not make up its
  // response.
  const isWhole = response !== null && hashOf(response) === responseHashOf(record)
  const filled = fillPart(record, 'request', sameRequest(checks, kept))
  return fillPart(filled, 'response', isWhole ? response : null)
}

function sameRequest(checks: readonly ExchangeCheck[], { request }: KeptExchange): JsonObject | null {
  const given = hasPassed(checks, 'request given') ? objectOf(request) : null
  return given && stripUnsetMembers(given)
}

function sameResponse(checks: readonly ExchangeCheck[], { answer }: KeptExchange): JsonObject | null {
  return hasPassed(checks, 'answer given') && answer !== undefined ? readResponse(answer) : null
}

function hasPassed(checks: readonly ExchangeCheck[], name: ExchangeCheck['name']): boolean {
  return checks.some((check) => check.name === name && check.outcome === 'passed')
}

function hashOf(response: JsonObject): string {
  return hashCompletion({ request: {}, response }).responseHash
}

function responseHashOf(record: JsonObject): Json | undefined {
  const receipt = objectOf(memberOf(record, 'receipt'))
  return receipt === null ? undefined : memberOf(receipt, 'response_hash')
}

/** Null for chunks that amount to no answer. */
function readResponse(answer: KeptAnswer): JsonObject | null {
  try {
    return responseOf(answer)
  } catch (fault) {
    if (fault instanceof FormatError) return null
    throw fault
  }
}

function objectOf(value: Json | undefined): JsonObject | null {
  return isJsonObject(value) ? value : null
}

function fillPart(record: JsonObject, part: 'request' | 'response', value: JsonObject | null): JsonObject {
  const known = memberOf(record, part)
  if (value === null || (known !== undefined && known !== null)) return record
  const { [`${part}_hash`]: _, ...rest } = record
  return { ...rest, [part]: value }
}
