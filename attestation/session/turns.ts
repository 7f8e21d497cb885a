import { decodeBase64 } from '../bytes.ts'
import { DEMANDS_MEMBER, type Demands, demandsOf, parseDemands } from '../demands.ts'
import { FormatError } from '../errors.ts'
import { parseStrictJson } from '../json/parse-strict.ts'
import { isJsonObject, type JsonObject, memberAt, memberOf } from '../json/value.ts'
import { answersOfChat, itemsOfChat } from './chat-turns.ts'
import type { TurnItem } from './items.ts'
import { answersOfMessages, itemsOfMessages } from './messages-turns.ts'
import { answersOfResponses, itemsOfResponses } from './responses-turns.ts'

/** What a session reads of the calls of one dialect. All input is attacker-controlled. */
export type DialectTurns = {
  /** The body in a request as it is hashed. */
  bodyOf(request: JsonObject): JsonObject
  /** The demands in a request as it is hashed. Throws FormatError. */
  demandsOf(request: JsonObject): Demands | null
  /** The items of a request's body, in their order. */
  itemsOf(body: JsonObject): readonly TurnItem[]
  /** The items of an answer, in their order: a list for each of its choices. */
  answersOf(response: JsonObject): readonly (readonly TurnItem[])[]
}

/** The hashed header with a caller's demands, in dialects whose bodies have no place for them. */
const CALL_HEADER = `${DEMANDS_MEMBER}-call`

/** By the dialect that a receipt names. Receipts of versions 1 and 2 are of chat completions. */
export const TURNS = {
  chat: {
    bodyOf: (request) => request,
    demandsOf,
    itemsOf: itemsOfChat,
    answersOf: answersOfChat,
  },
  responses: {
    bodyOf: bodyIn,
    demandsOf: demandsInHeader,
    itemsOf: itemsOfResponses,
    answersOf: answersOfResponses,
  },
  messages: {
    bodyOf: bodyIn,
    demandsOf: demandsInHeader,
    itemsOf: itemsOfMessages,
    answersOf: answersOfMessages,
  },
} as const satisfies Readonly<Record<string, DialectTurns>>

/** A request of these dialects is hashed as `{ dialect, headers, body }`. */
function bodyIn(request: JsonObject): JsonObject {
  const body = memberOf(request, 'body')
  return isJsonObject(body) ? body : {}
}

function demandsInHeader(request: JsonObject): Demands | null {
  const header = memberAt(request, 'headers', CALL_HEADER) ?? null
  if (header === null) return null
  if (typeof header !== 'string' || !/^[\w-]+$/.test(header))
    throw new FormatError('invalid_demand', `expected ${CALL_HEADER} to be base64url`)
  const base64 = header.replaceAll('-', '+').replaceAll('_', '/')
  const padded = base64.padEnd(4 * Math.ceil(base64.length / 4), '=')
  return parseDemands(parseStrictJson(decodeBase64(padded)))
}
