import {
  compareExchange,
  type ExchangeCheck,
  type KeptAnswer,
  type KeptExchange,
  keptResponseOf,
  matchingParts,
} from '../compare-exchange.ts'
import { DEMANDS_MEMBER } from '../demands.ts'
import { dialectOfRequest } from '../dialects/dialects.ts'
import { attempt } from '../finding.ts'
import {
  isJsonArray,
  isJsonObject,
  type Json,
  type JsonObject,
  memberAt,
  memberOf,
} from '../json/value.ts'
import {
  boundMessage,
  SHOWN_MESSAGES_MAX,
  type ShownExchange,
  type ShownMessage,
} from './shown-exchange.ts'

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
  const { request, response } = matchingParts(evidence, kept, checks)
  return {
    checks,
    shown: describeExchange({
      request: objectOf(memberAt(evidence, 'request')) ?? request,
      response: objectOf(memberAt(evidence, 'response')) ?? response,
    }),
  }
}

/** Describes the caller's own answer and request in words. Other checks verify them. */
export function describeKept(request: Json, answer: KeptAnswer): ComparedExchange {
  const read = attempt(() => keptResponseOf(answer, dialectOfRequest(request)))
  const response = 'value' in read ? read.value : null
  return { checks: [], shown: describeExchange({ request: objectOf(request), response }) }
}

function objectOf(value: Json | undefined): JsonObject | null {
  return isJsonObject(value) ? value : null
}

/**
 * Describes a completion in words for people: text in messages and choices, tool calls, refusals,
 * and all other members by name.
 */
export function describeExchange(completion: {
  readonly request: JsonObject | null
  readonly response: JsonObject | null
}): ShownExchange {
  const { request, response } = completion
  return {
    asked: request && describeRequest(request),
    said: response && describeResponse(response),
  }
}

function describeRequest(request: JsonObject): readonly ShownMessage[] {
  const messages = listOf(memberOf(request, 'messages'))
  // Null members are unset. Other checks cover the demands to the gateway.
  const { messages: _, model: __, [DEMANDS_MEMBER]: ___, ...parameters } = request
  const rest = Object.keys(parameters).filter((name) => parameters[name] !== null)
  const earlier = Math.max(0, messages.length - SHOWN_MESSAGES_MAX)
  return [
    boundMessage('model', textOf(memberAt(request, 'model'))),
    ...describeParameters(rest.map((name) => [name, textOf(parameters[name])])),
    ...(earlier > 0 ? [boundMessage('…', `${earlier} earlier messages`)] : []),
    ...messages.slice(-SHOWN_MESSAGES_MAX).map(describeMessage),
  ]
}

/**
 * Writes one line for each parameter. A long value, or a value of several lines, gets its own
 * message. A name that is not plain is written as JSON, so it cannot fake a line.
 */
function describeParameters(
  given: readonly (readonly [string, string])[],
): readonly ShownMessage[] {
  const lines = given.map(([name, value]) => {
    const shown = /^[\w.-]{1,64}$/.test(name) ? name : JSON.stringify(name)
    return `${shown}: ${value}`
  })
  const isShort = (line: string) => line.length <= PARAMETER_LENGTH_MAX && !line.includes('\n')
  const short = lines.filter(isShort)
  const long = lines.filter((line) => !isShort(line))
  return [
    ...(short.length > 0 ? [boundMessage('with', short.join('\n'))] : []),
    ...long.slice(0, SHOWN_MESSAGES_MAX).map((line) => boundMessage('with', line)),
    ...(long.length > SHOWN_MESSAGES_MAX
      ? [boundMessage('…', `${long.length - SHOWN_MESSAGES_MAX} parameters more`)]
      : []),
  ]
}

/** Longest parameter that shares a message with others, characters. */
const PARAMETER_LENGTH_MAX = 120

function describeResponse(response: JsonObject): readonly ShownMessage[] {
  const choices = listOf(memberOf(response, 'choices'))
  const later = Math.max(0, choices.length - SHOWN_MESSAGES_MAX)
  return [
    ...choices.slice(0, SHOWN_MESSAGES_MAX).map((choice) => {
      const shown = describeMessage(isJsonObject(choice) ? memberOf(choice, 'message') : choice)
      if (choices.length === 1) return shown
      const number = isJsonObject(choice) ? textOf(memberOf(choice, 'index')) : ''
      return { ...shown, who: `choice ${number}` }
    }),
    ...(later > 0 ? [boundMessage('…', `${later} choices more`)] : []),
  ]
}

function describeMessage(message: Json | undefined): ShownMessage {
  if (!isJsonObject(message)) return boundMessage('?', textOf(message))
  const parts = Object.entries(message).flatMap(([name, value]) => describeMember(name, value))
  return boundMessage(textOf(memberOf(message, 'role')), parts.join('\n'))
}

function describeMember(name: string, value: Json): readonly string[] {
  if (value === null || name === 'role') return []
  if (name === 'content') return isJsonArray(value) ? value.map(describePart) : [textOf(value)]
  if (name === 'tool_calls' && isJsonArray(value))
    return value.map((call) => `[calls ${describeToolCall(call)}]`)
  if (name === 'function_call') return [`[calls ${describeToolCall({ function: value })}]`]
  return [`[${name}: ${textOf(value)}]`]
}

function describePart(part: Json): string {
  const text = memberAt(part, 'type') === 'text' ? memberAt(part, 'text') : undefined
  return typeof text === 'string' ? text : `[part: ${textOf(part)}]`
}

function describeToolCall(call: Json): string {
  const called = memberAt(call, 'function')
  if (!isJsonObject(called)) return textOf(call)
  return `${textOf(memberOf(called, 'name'))}(${textOf(memberOf(called, 'arguments'))})`
}

/** A missing member is shown as null. */
function textOf(value: Json | undefined): string {
  return typeof value === 'string' ? value : JSON.stringify(value ?? null)
}

function listOf(value: Json | undefined): readonly Json[] {
  return isJsonArray(value) ? value : []
}
