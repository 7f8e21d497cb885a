import { filterMembers, type JsonObject, memberOf } from '../../json/value.ts'
import { isEmpty, listIn, PROOF_MEMBER, refuse, textIn } from '../dialect.ts'

/** The statuses of an ended answer. With another status, the provider still works on the call. */
const STATUSES = ['completed', 'incomplete', 'failed']

/**
 * Reads a whole response from a provider (attacker-controlled). Leaves out the proof member and
 * what SDKs compute. Throws FormatError `invalid_form`, and as checkStatus does.
 */
export function readWholeResponse(answer: JsonObject): JsonObject {
  if (memberOf(answer, 'object') !== 'response')
    throw refuse('invalid_form', 'expected object to be response')
  textIn(answer, 'id')
  if (!STATUSES.includes(textIn(answer, 'status')))
    throw refuse('invalid_form', 'expected a response that has ended')
  checkStatus(answer)
  for (const item of listIn(answer, 'output'))
    if (textIn(item, 'type') === 'message' && memberOf(item, 'role') !== 'assistant')
      throw refuse('invalid_form', 'expected a message of the assistant')
  return withoutComputed(answer)
}

/**
 * Throws FormatError `changed_finish` if a completed response has an error: readers show only one.
 */
export function checkStatus(response: JsonObject): void {
  const isCut = ['error', 'incomplete_details'].some((name) => !isEmpty(memberOf(response, name)))
  if (memberOf(response, 'status') === 'completed' && isCut)
    throw refuse('changed_finish', 'expected no error in a response that is completed')
}

/** SDKs compute these members from the output. A provider could send another text in them. */
const COMPUTED = ['output_text', 'output_parsed']

/** The response without its proof member and without the members that SDKs compute. */
export function withoutComputed(response: JsonObject): JsonObject {
  return filterMembers(response, (name) => name !== PROOF_MEMBER && !COMPUTED.includes(name))
}
