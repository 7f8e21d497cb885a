import { type JsonObject, memberOf } from '../../json/value.ts'
import { withoutPrototypes } from '../../json/without-prototypes.ts'
import { listIn, objectIn, refuse, textIn, withoutProof } from '../dialect.ts'
import { readWholeBlock } from './block.ts'

/**
 * Reads a whole message from a provider (attacker-controlled). Leaves out the proof member. Throws
 * FormatError if a stream of the same content would be refused.
 */
export function readWholeMessage(answer: JsonObject): JsonObject {
  const message = readBeginning(withoutPrototypes(answer))
  textIn(message, 'stop_reason')
  if ((memberOf(message, 'content') ?? null) === null)
    throw refuse('invalid_form', 'expected the content of the message')
  const ids = new Set<string>()
  return {
    ...message,
    content: listIn(message, 'content').map((each) => readWholeBlock(each, ids)),
  }
}

/** The members that a message begins with. vLLM leaves out `type` and `role`. */
export function readBeginning(given: JsonObject): JsonObject {
  const message: JsonObject = { type: 'message', role: 'assistant', ...withoutProof(given) }
  if (message.type !== 'message' || message.role !== 'assistant')
    throw refuse('invalid_form', 'expected a message of the assistant')
  for (const name of ['id', 'model']) textIn(message, name)
  objectIn(message, 'usage')
  return message
}
