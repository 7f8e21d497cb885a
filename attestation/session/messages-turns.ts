import { isJsonObject, type Json, type JsonObject, memberOf } from '../json/value.ts'
import {
  asked,
  called,
  idIn,
  inputOfValue,
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

export function itemsOfMessages(body: JsonObject): readonly TurnItem[] {
  return [
    ...asked('system', memberOf(body, 'system')),
    ...partsOf(memberOf(body, 'messages')).flatMap((message) => {
      if (!isJsonObject(message)) return [other('message', message)]
      const role = writtenOf(memberOf(message, 'role'))
      return partsOf(memberOf(message, 'content')).flatMap((block) => itemsOfBlock(role, block))
    }),
  ]
}

export function answersOfMessages(response: JsonObject): readonly (readonly TurnItem[])[] {
  return [
    partsOf(memberOf(response, 'content')).flatMap((block) => itemsOfBlock('assistant', block)),
  ]
}

function itemsOfBlock(role: string, block: Json): readonly TurnItem[] {
  const text = textOfPart(block)
  // Clients leave empty texts out, since the API refuses them.
  if (text === '') return []
  if (role === 'assistant') return [itemOfAnswer(text, block)]
  if (isJsonObject(block) && memberOf(block, 'type') === 'tool_result')
    return returned(
      idIn(block, 'tool_use_id'),
      memberOf(block, 'content'),
      memberOf(block, 'is_error') === true,
    )
  return asked(role, [block])
}

function itemOfAnswer(text: string | null, block: Json): TurnItem {
  if (text !== null) return said(text, null)
  if (!isJsonObject(block)) return other('block', block, { isAnswer: true })
  const type = writtenOf(memberOf(block, 'type'))
  switch (type) {
    case 'thinking': {
      const thinking = writtenOf(memberOf(block, 'thinking'))
      return thought(thinking, null, [thinking, memberOf(block, 'signature') ?? null])
    }
    case 'redacted_thinking':
      return thought('', null, ['', memberOf(block, 'data') ?? null])
    case 'tool_use':
    case 'server_tool_use':
    case 'mcp_tool_use': {
      const input = memberOf(block, 'input') ?? {}
      const name = toolName(memberOf(block, 'server_name'), memberOf(block, 'name'))
      const compared = inputOfValue(input)
      return called(name, JSON.stringify(input), { id: idIn(block, 'id'), input: compared })
    }
    default:
      return other(type, block, { isAnswer: true })
  }
}
