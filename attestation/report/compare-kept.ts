import {
  compareExchange,
  type ExchangeCheck,
  type KeptAnswer,
  type KeptExchange,
  keptResponseOf,
  matchingParts,
} from '../compare-exchange.ts'
import { dialectNamed } from '../dialects/dialect-names.ts'
import { dialectOfRequest } from '../dialects/dialects.ts'
import { attempt } from '../finding.ts'
import { isJsonObject, type Json, type JsonObject, memberAt } from '../json/value.ts'
import { describeExchange } from './describe-exchange.ts'
import type { ShownExchange } from './shown-exchange.ts'

export type ComparedExchange = {
  readonly checks: readonly ExchangeCheck[]
  readonly shown: ShownExchange
}

/**
 * Compares a kept exchange with the record in the evidence, and describes the completion in words.
 * If the record lacks the request or the response, describes the kept part with the same hash.
 */
export function compareKept(evidence: Json, kept: KeptExchange): ComparedExchange {
  const checks = compareExchange(isJsonObject(evidence) ? evidence : {}, kept)
  const { request, response } = matchingParts(evidence, kept, checks)
  const dialect = memberAt(evidence, 'receipt', 'dialect')
  return {
    checks,
    shown: describeExchange({
      dialect: dialectNamed(dialect),
      request: objectOf(memberAt(evidence, 'request')) ?? request,
      response: objectOf(memberAt(evidence, 'response')) ?? response,
    }),
  }
}

/** Describes the caller's kept request and answer in words. Verifies nothing. */
export function describeKept({
  request,
  answer,
}: {
  readonly request: Json
  readonly answer: KeptAnswer
}): ShownExchange {
  const dialect = dialectOfRequest(request)
  const read = attempt(() => keptResponseOf(answer, dialect))
  const response = 'value' in read ? read.value : null
  return describeExchange({ dialect, request: objectOf(request), response })
}

function objectOf(value: Json | undefined): JsonObject | null {
  return isJsonObject(value) ? value : null
}
