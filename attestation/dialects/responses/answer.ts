import { filterMembers, type JsonObject, memberOf } from '../../json/value.ts'
import { isEmpty, PROOF_MEMBER, refuse, textIn } from '../dialect.ts'

/** The events that can end a stream, each with the status of its response. */
export const TERMINALS: ReadonlyMap<string, string> = new Map([
  ['response.completed', 'completed'],
  ['response.incomplete', 'incomplete'],
  ['response.failed', 'failed'],
])

/**
 * Throws FormatError `changed_finish` if a completed response has an error, because readers show
 * either the answer or the error.
 */
export function checkStatus(response: JsonObject): void {
  const isCut = ['error', 'incomplete_details'].some((name) => !isEmpty(memberOf(response, name)))
  if (memberOf(response, 'status') === 'completed' && isCut)
    throw refuse('changed_finish', 'expected no error in a response that is completed')
}

/** SDKs compute these members from the output. The provider's values could differ from it. */
const COMPUTED = ['output_text', 'output_parsed']

/** The response without its proof member and without the members that SDKs compute. */
export function readResponse(response: JsonObject): JsonObject {
  textIn(response, 'id')
  if (memberOf(response, 'object') !== 'response')
    throw refuse('invalid_form', 'expected object to be response')
  return filterMembers(response, (name) => name !== PROOF_MEMBER && !COMPUTED.includes(name))
}
