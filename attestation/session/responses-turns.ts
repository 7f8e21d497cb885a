import { isJsonObject, type Json, type JsonObject, memberOf } from '../json/value.ts'
import {
  asked,
  type ComparedInput,
  called,
  idIn,
  inputOfArguments,
  other,
  partsOf,
  returned,
  said,
  type TurnItem,
  textOfPart,
  thought,
  toolName,
  writtenOf,
} from './items.ts'

export function itemsOfResponses(body: JsonObject): readonly TurnItem[] {
  const input = memberOf(body, 'input')
  return [
    ...asked('system', memberOf(body, 'instructions')),
    ...(typeof input === 'string' ? asked('user', input) : partsOf(input).flatMap(itemsOfItem)),
  ]
}

export function answersOfResponses(response: JsonObject): readonly (readonly TurnItem[])[] {
  return [partsOf(memberOf(response, 'output')).flatMap(itemsOfItem)]
}

function itemsOfItem(item: Json): readonly TurnItem[] {
  if (!isJsonObject(item)) return [other('item', item)]
  const type = idIn(item, 'type') ?? 'message'
  const callId = idIn(item, 'call_id')
  switch (type) {
    case 'message':
      return itemsOfMessage(item)
    case 'reasoning':
      return [itemOfReasoning(item)]
    case 'function_call':
    case 'custom_tool_call': {
      const isFree = type === 'custom_tool_call'
      const given = memberOf(item, isFree ? 'input' : 'arguments')
      const text = writtenOf(given)
      const input: ComparedInput = isFree ? ['text', text] : inputOfArguments(given)
      const name = toolName(memberOf(item, 'namespace'), memberOf(item, 'name'))
      return [called(name, text, { id: callId, input })]
    }
    case 'function_call_output':
    case 'custom_tool_call_output':
      return returned(callId, memberOf(item, 'output'))
    default:
      return [other(type, item, { id: idIn(item, 'id'), isAnswer: !isOfCaller(type) })]
  }
}

/** Callers send the outputs of their own tools, and approvals. */
function isOfCaller(type: string): boolean {
  return type.endsWith('_output') || type === 'mcp_approval_response'
}

function itemsOfMessage(item: JsonObject): readonly TurnItem[] {
  const role = writtenOf(memberOf(item, 'role'))
  const content = memberOf(item, 'content')
  if (role !== 'assistant') return asked(role, content)
  const id = idIn(item, 'id')
  return partsOf(content).map((part) => {
    const text = textOfPart(part)
    if (text !== null) return said(text, id)
    const refusal = isJsonObject(part) ? memberOf(part, 'refusal') : undefined
    return typeof refusal === 'string'
      ? said(refusal, id, 'refused')
      : other('part', part, { id, isAnswer: true })
  })
}

/** Clients may leave out the content, so only summary and encrypted content are compared. */
function itemOfReasoning(item: JsonObject): TurnItem {
  const summary = textsIn(memberOf(item, 'summary'))
  const sealed = memberOf(item, 'encrypted_content') ?? null
  const shown = [...summary, ...textsIn(memberOf(item, 'content'))].join('\n')
  return thought(shown, idIn(item, 'id'), [summary.join('\n'), sealed])
}

function textsIn(parts: Json | undefined): readonly string[] {
  return partsOf(parts).map((part) => writtenOf(isJsonObject(part) ? memberOf(part, 'text') : part))
}
