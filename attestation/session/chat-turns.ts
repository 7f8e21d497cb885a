import {
  isJsonArray,
  isJsonObject,
  type Json,
  type JsonObject,
  memberAt,
  memberOf,
} from '../json/value.ts'
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
  writtenOf,
} from './items.ts'

export function itemsOfChat(body: JsonObject): readonly TurnItem[] {
  return partsOf(memberOf(body, 'messages')).flatMap(itemsOfMessage)
}

export function answersOfChat(response: JsonObject): readonly (readonly TurnItem[])[] {
  return partsOf(memberOf(response, 'choices')).map((choice) => {
    const message = isJsonObject(choice) ? memberOf(choice, 'message') : undefined
    return isJsonObject(message) ? itemsOfAssistant(message) : [other('choice', choice, ANSWER)]
  })
}

const ANSWER = { isAnswer: true }
/** Members of an answer that clients leave out of later requests, such as annotations. */
const EXTRA = { isAnswer: true, isOptional: true }

function itemsOfMessage(message: Json): readonly TurnItem[] {
  if (!isJsonObject(message)) return [other('message', message)]
  const role = writtenOf(memberOf(message, 'role'))
  const content = memberOf(message, 'content')
  if (role === 'assistant') return itemsOfAssistant(message)
  if (role === 'tool') return returned(idIn(message, 'tool_call_id'), content)
  return asked(role, content)
}

const THOUGHTS = ['reasoning_content', 'reasoning']
const READ = ['role', 'content', 'refusal', 'tool_calls', ...THOUGHTS]

function itemsOfAssistant(message: JsonObject): readonly TurnItem[] {
  const refusal = memberOf(message, 'refusal')
  // Some servers send the same thinking in both members.
  const thoughts = new Set(THOUGHTS.map((name) => writtenOf(memberOf(message, name) ?? '')))
  const rest = Object.entries(message).filter(
    ([name, value]) =>
      !READ.includes(name) && value !== null && !(isJsonArray(value) && value.length === 0),
  )
  return [
    ...[...thoughts].flatMap((text) => (text === '' ? [] : [thought(text, null, [text, null])])),
    ...partsOf(memberOf(message, 'content')).map(itemOfPart),
    ...(typeof refusal === 'string' && refusal !== '' ? [said(refusal, null, 'refused')] : []),
    ...partsOf(memberOf(message, 'tool_calls')).map(itemOfCall),
    ...rest.map(([name, value]) => other(name, value, EXTRA)),
  ]
}

function itemOfPart(part: Json): TurnItem {
  const text = textOfPart(part)
  if (text !== null) return said(text, null)
  const refusal = isJsonObject(part) ? memberOf(part, 'refusal') : undefined
  return typeof refusal === 'string' ? said(refusal, null, 'refused') : other('part', part, ANSWER)
}

function itemOfCall(call: Json): TurnItem {
  const tools = givenIn(call, ['function', 'custom'])
  const [tool] = tools
  // A call with two tools or two inputs is ambiguous: programs may use either one.
  if (!isJsonObject(call) || !isJsonObject(tool) || tools.length > 1)
    return other('tool call', call, ANSWER)
  const inputs = givenIn(tool, ['arguments', 'input'])
  if (inputs.length > 1) return other('tool call', call, ANSWER)
  const text = writtenOf(inputs[0])
  const isFree = (memberOf(tool, 'input') ?? null) !== null
  const input: ComparedInput = isFree ? ['text', text] : inputOfArguments(inputs[0])
  return called(writtenOf(memberOf(tool, 'name')), text, { id: idIn(call, 'id'), input })
}

/** The values of these members, except null. An array is one value. */
function givenIn(object: Json, names: readonly string[]): readonly Json[] {
  const values: Json[] = []
  for (const name of names) {
    const value = memberAt(object, name) ?? null
    if (value !== null) values.push(value)
  }
  return values
}
