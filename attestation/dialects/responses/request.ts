import {
  isJsonArray,
  isJsonObject,
  type Json,
  type JsonObject,
  memberOf,
} from '../../json/value.ts'
import { isEmpty } from '../dialect.ts'
import { findGiven, findReference, type RefusedMember } from '../refused-member.ts'

/** Members that refer to content stored at the provider, so they hide a part of the prompt. */
const KEPT_ELSEWHERE: ReadonlyMap<string, string> = new Map([
  ['background', 'the answer of a background call is not a part of the call'],
  ['previous_response_id', 'send the items of the turns before instead'],
  ['conversation', 'send the items of the conversation instead'],
  ['prompt', 'send the text of the prompt as instructions instead'],
])

/**
 * Returns the first member of a Responses request that hides a part of the prompt (formats.md, What
 * is refused), or null. Does not search schemas of tools.
 */
export function findHiddenInResponses(request: JsonObject): RefusedMember | null {
  let found = findGiven(request, KEPT_ELSEWHERE)
  for (const name of ['input', 'instructions', 'tools']) {
    const value = memberOf(request, name) ?? null
    found ??= findItemReference(value, name) ?? findReference(value, [name], whyHidden)
  }
  return found
}

/** A reference can lack a type. Any other item without a type has a role. */
function findItemReference(items: Json, name: string): RefusedMember | null {
  for (const [at, item] of (isJsonArray(items) ? items : []).entries()) {
    if (!isJsonObject(item)) continue
    const { type, role, id } = item
    const lacksForm = isEmpty(type) && isEmpty(role) && typeof id === 'string'
    if (type === 'item_reference' || lacksForm)
      return { path: [name, at], why: 'send the item itself instead of a reference' }
  }
  return null
}

function whyHidden(part: JsonObject): string | null {
  const { type, container, container_id: containerId } = part
  if (!isEmpty(memberOf(part, 'file_id')) || !isEmpty(memberOf(part, 'file_ids')))
    return 'send the content of the file instead of its id'
  if (!isEmpty(memberOf(part, 'skill_id'))) return 'send the skill itself instead of its id'
  if (type === 'image_generation_call' && isEmpty(memberOf(part, 'result')))
    return 'send the image as the result of the call instead of its id'
  // A call that the provider made shows its code, and names the container where the code ran.
  const isCall = type === 'code_interpreter_call' && memberOf(part, 'code') !== undefined
  const isContainer =
    (type === 'code_interpreter' && typeof container === 'string') ||
    (!isCall && !isEmpty(containerId))
  return isContainer ? 'name a container of type auto instead of a container by its id' : null
}
