import {
  compareExchange,
  type ExchangeCheck,
  type KeptAnswer,
  type KeptExchange,
  keptResponseOf,
  matchingParts,
} from '../compare-exchange.ts'
import { isDialectName } from '../dialects/dialect-names.ts'
import { dialectOfRequest } from '../dialects/dialects.ts'
import { attempt } from '../finding.ts'
import { isJsonObject, type Json, type JsonObject, memberAt } from '../json/value.ts'
import { describeExchange } from './describe-exchange.ts'
import type { ShownExchange } from './shown-exchange.ts'

/** The result of comparing a kept exchange with evidence, and the completion in words. */
export type ComparedExchange = {
  readonly checks: readonly ExchangeCheck[]
  readonly shown: ShownExchange
}

/**
 * Compares a kept exchange with the record in the evidence, and describes the completion in words.
 * A kept part replaces a missing part if its hash matches.
 */
export function compareKept(evidence: Json, kept: KeptExchange): ComparedExchange {
  const checks = compareExchange(isJsonObject(evidence) ? evidence : {}, kept)
  const { request, response } = matchingParts(checks, kept)
  const dialect = memberAt(evidence, 'receipt', 'dialect')
  return {
    checks,
    shown: describeExchange({
      dialect: isDialectName(dialect) ? dialect : 'chat',
      request: objectOf(memberAt(evidence, 'request')) ?? request,
      response: objectOf(memberAt(evidence, 'response')) ?? response,
    }),
  }
}

/** Describes the caller's own answer and request in words. Other checks verify them. */
export function describeKept(
  answer: Json,
  given: { readonly request: Json; readonly chunks: readonly JsonObject[] | undefined },
): ComparedExchange {
  const { request, chunks } = given
  const kept: KeptAnswer =
    chunks === undefined ? { kind: 'whole', answer } : { kind: 'stream', chunks }
  return {
    checks: [],
    shown: describeExchange({
      dialect: dialectOfRequest(request),
      request: objectOf(request),
      response: readResponse(kept),
    }),
  }
}

/** Null if the chunks do not form an answer. */
function readResponse(answer: KeptAnswer): JsonObject | null {
  const read = attempt(() => keptResponseOf(answer))
  return 'value' in read ? read.value : null
}

function objectOf(value: Json | undefined): JsonObject | null {
  return isJsonObject(value) ? value : null
}
