import { type JsonObject, memberOf } from '../../json/value.ts'
import { listIn, refuse, textIn, withoutProof } from '../dialect.ts'

/** The statuses of an ended answer. With another status, the provider still works on the call. */
const STATUSES = ['completed', 'incomplete', 'failed']

/**
 * Reads a whole response from a provider (attacker-controlled). Leaves out the proof member. Throws
 * FormatError `invalid_form`.
 */
export function readWholeResponse(answer: JsonObject): JsonObject {
  if (memberOf(answer, 'object') !== 'response')
    throw refuse('invalid_form', 'expected object to be response')
  textIn(answer, 'id')
  if (!STATUSES.includes(textIn(answer, 'status')))
    throw refuse('invalid_form', 'expected a response that has ended')
  for (const item of listIn(answer, 'output')) textIn(item, 'type')
  return withoutProof(answer)
}
