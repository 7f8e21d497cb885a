import type { DialectName } from '../dialects/dialect-names.ts'
import type { JsonObject } from '../json/value.ts'
import { answersOfChat, itemsOfChat } from './chat-turns.ts'
import type { TurnItem } from './items.ts'
import { answersOfMessages, itemsOfMessages } from './messages-turns.ts'
import { answersOfResponses, itemsOfResponses } from './responses-turns.ts'

/** Reads the items of calls in one dialect. All input is attacker-controlled. */
export type DialectTurns = {
  /** The items of a request's body, in their order. */
  itemsOf(body: JsonObject): readonly TurnItem[]
  /** The items of an answer, in their order: a list for each of its choices. */
  answersOf(response: JsonObject): readonly (readonly TurnItem[])[]
}

export const TURNS: Readonly<Record<DialectName, DialectTurns>> = {
  chat: { itemsOf: itemsOfChat, answersOf: answersOfChat },
  responses: { itemsOf: itemsOfResponses, answersOf: answersOfResponses },
  messages: { itemsOf: itemsOfMessages, answersOf: answersOfMessages },
}
