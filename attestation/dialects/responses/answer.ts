import { filterMembers, type JsonObject, memberOf } from '../../json/value.ts'
import { withoutPrototypes } from '../../json/without-prototypes.ts'
import { isEmpty, listIn, PROOF_MEMBER, refuse, textIn } from '../dialect.ts'
import { checkWholeItem, withId } from './item.ts'

/** The events that can end a stream, each with the status of its response. */
export const TERMINALS: ReadonlyMap<string, string> = new Map([
  ['response.completed', 'completed'],
  ['response.incomplete', 'incomplete'],
  ['response.failed', 'failed'],
])

/**
 * Reads a whole response from a provider (attacker-controlled). Leaves out the proof member and the
 * members that SDKs compute. Throws FormatError if a stream of the same content would be refused.
 */
export function readWholeResponse(given: JsonObject): JsonObject {
  const answer = readResponse(withoutPrototypes(given))
  const status = textIn(answer, 'status')
  if (![...TERMINALS.values()].includes(status))
    throw refuse('invalid_form', 'expected a response that has ended')
  checkStatus(answer)
  const output = listIn(answer, 'output').map(withId)
  // Only items after the last whole item can be cut, by a failure or the limit of tokens.
  const open = output.findLastIndex((item) => memberOf(item, 'status') !== 'incomplete') + 1
  const ids = new Set<string>()
  for (const [at, item] of output.entries())
    checkWholeItem(item, ids, status === 'completed' || at < open)
  return { ...answer, output }
}

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
