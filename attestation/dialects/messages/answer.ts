import { isJsonArray, type JsonObject, memberOf } from '../../json/value.ts'
import { listIn, refuse, textIn, withoutProof } from '../dialect.ts'

/**
 * Reads a whole message from a provider (attacker-controlled). Leaves out the proof member. Throws
 * FormatError `invalid_form`.
 */
export function readWholeMessage(answer: JsonObject): JsonObject {
  if (memberOf(answer, 'type') !== 'message' || memberOf(answer, 'role') !== 'assistant')
    throw refuse('invalid_form', 'expected a message of the assistant')
  textIn(answer, 'id')
  textIn(answer, 'model')
  textIn(answer, 'stop_reason')
  if (!isJsonArray(memberOf(answer, 'content') ?? null))
    throw refuse('invalid_form', 'expected the content of the message')
  for (const block of listIn(answer, 'content')) textIn(block, 'type')
  return withoutProof(answer)
}
