import { type JsonObject, memberOf } from '../../json/value.ts'
import { listIn, refuse, textIn, withoutProof } from '../dialect.ts'

/** What a whole answer can say of its end. Others are of calls that go on elsewhere. */
const STATUSES = ['completed', 'incomplete', 'failed']

/**
 * The response of a provider that was not asked for a stream (attacker-controlled), without its
 * proof member. Throws FormatError `invalid_form`.
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
