import type { DialectName } from '../dialects/dialect-names.ts'
import type { JsonObject } from '../json/value.ts'
import { describeChatRequest, describeChatResponse } from './describe-chat.ts'
import { describeAnswerItems, describeRequestItems } from './describe-items.ts'
import type { ShownExchange, ShownMessage } from './shown-exchange.ts'

/** All input is attacker-controlled. */
type ExchangeWords = {
  /** `request` has the form of a record's request. */
  describeRequest(request: JsonObject): readonly ShownMessage[]
  describeResponse(response: JsonObject): readonly ShownMessage[]
}

const WORDS: Readonly<Record<DialectName, ExchangeWords>> = {
  chat: { describeRequest: describeChatRequest, describeResponse: describeChatResponse },
  responses: wordsOfItems('responses'),
  messages: wordsOfItems('messages'),
}

function wordsOfItems(dialect: Exclude<DialectName, 'chat'>): ExchangeWords {
  return {
    describeRequest: (request) => describeRequestItems(dialect, request),
    describeResponse: (response) => describeAnswerItems(dialect, response),
  }
}

/**
 * Describes a completion in words for people: texts, thinking, calls of tools and their answers,
 * images by their digests, refusals, and all other members by name.
 */
export function describeExchange(completion: {
  /** Default: chat. */
  readonly dialect?: DialectName
  readonly request: JsonObject | null
  readonly response: JsonObject | null
}): ShownExchange {
  const { dialect = 'chat', request, response } = completion
  const { describeRequest, describeResponse } = WORDS[dialect]
  return {
    asked: request && describeRequest(request),
    said: response && describeResponse(response),
  }
}
