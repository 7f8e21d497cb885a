import { readCallRequest, statedHeaders } from '../dialects/call-request.ts'
import type { DialectName } from '../dialects/dialect-names.ts'
import { FormatError } from '../errors.ts'
import { isJsonArray, type Json, type JsonObject, memberAt } from '../json/value.ts'
import { orNull } from '../or-null.ts'
import { nameTools } from '../session/items.ts'
import { TURNS } from '../session/turns.ts'
import { describeParameters, leftOut, plainName, textOf } from './describe-parameters.ts'
import {
  boundMessage,
  describeStep,
  SHOWN_MESSAGES_MAX,
  type ShownMessage,
} from './shown-exchange.ts'

type ItemDialect = Exclude<DialectName, 'chat'>

/**
 * Names of the members that hold the conversation (`content`) and the reason for the end (`ends`).
 */
const PLACES = {
  responses: {
    content: ['instructions', 'input'],
    ends: [['status'], ['incomplete_details', 'reason'], ['error', 'message']],
  },
  messages: { content: ['system', 'messages'], ends: [['stop_reason'], ['stop_sequence']] },
} as const satisfies Record<ItemDialect, object>

/**
 * Describes the parameters and the last items of a request. If the request's form is unknown, all
 * of `request` is read as the body.
 */
export function describeRequestItems(
  dialect: ItemDialect,
  request: JsonObject,
): readonly ShownMessage[] {
  const read = orNull(() => readCallRequest(dialect, request), FormatError)
  const { headers, body } = read ?? { headers: {}, body: request }
  const stated = Object.entries(statedHeaders(headers)).map(([name, value]) => `${name}: ${value}`)
  const items = nameTools(TURNS[dialect].itemsOf(body))
  return [
    ...describeParameters(body, PLACES[dialect].content, writeParameter),
    ...(stated.length > 0 ? [boundMessage('headers', stated.join('\n'))] : []),
    ...leftOut(items.length - SHOWN_MESSAGES_MAX, 'earlier items'),
    ...items.slice(-SHOWN_MESSAGES_MAX).map(({ step }) => describeStep(step)),
  ]
}

/** Describes the first items of an answer, and why the answer ended. */
export function describeAnswerItems(
  dialect: ItemDialect,
  response: JsonObject,
): readonly ShownMessage[] {
  const items = TURNS[dialect].answersOf(response).flat()
  const ends = PLACES[dialect].ends
    .map((place) => memberAt(response, ...place))
    .filter((reason) => typeof reason === 'string')
  return [
    ...items.slice(0, SHOWN_MESSAGES_MAX).map(({ step }) => describeStep(step)),
    ...leftOut(items.length - SHOWN_MESSAGES_MAX, 'items more'),
    ...(ends.length > 0 ? [boundMessage('ended', ends.join(': '))] : []),
  ]
}

/** Shows only the names of tools: a definition may be pages long. */
function writeParameter(name: string, value: Json): string {
  if (name !== 'tools' || !isJsonArray(value)) return textOf(value)
  return value.map(nameOfTool).join(', ')
}

/** A tool that the provider runs can have a type and no name. */
function nameOfTool(tool: Json): string {
  const name = [memberAt(tool, 'name'), memberAt(tool, 'type')].find(
    (one) => typeof one === 'string',
  )
  return typeof name === 'string' ? plainName(name) : textOf(tool)
}
