import {
  isJsonArray,
  isJsonObject,
  type Json,
  type JsonObject,
  memberAt,
  memberOf,
} from '../json/value.ts'
import { describeParameters, leftOut, textOf } from './describe-parameters.ts'
import { boundMessage, SHOWN_MESSAGES_MAX, type ShownMessage } from './shown-exchange.ts'

export function describeChatRequest(request: JsonObject): readonly ShownMessage[] {
  const messages = listOf(memberOf(request, 'messages'))
  return [
    ...describeParameters(request, ['messages']),
    ...leftOut(messages.length - SHOWN_MESSAGES_MAX, 'earlier messages'),
    ...messages.slice(-SHOWN_MESSAGES_MAX).map(describeMessage),
  ]
}

export function describeChatResponse(response: JsonObject): readonly ShownMessage[] {
  const choices = listOf(memberOf(response, 'choices'))
  return [
    ...choices.slice(0, SHOWN_MESSAGES_MAX).map((choice) => {
      const shown = describeMessage(isJsonObject(choice) ? memberOf(choice, 'message') : choice)
      if (choices.length === 1) return shown
      const number = isJsonObject(choice) ? textOf(memberOf(choice, 'index')) : ''
      return { ...shown, who: `choice ${number}` }
    }),
    ...leftOut(choices.length - SHOWN_MESSAGES_MAX, 'choices more'),
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

function listOf(value: Json | undefined): readonly Json[] {
  return isJsonArray(value) ? value : []
}
