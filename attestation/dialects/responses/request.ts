import { type JsonObject, memberOf } from '../../json/value.ts'
import { findGiven, findReference, type RefusedMember } from '../refused-member.ts'

/** Members that refer to content at the provider: such a request does not show its prompt. */
const KEPT_ELSEWHERE: ReadonlyMap<string, string> = new Map([
  ['previous_response_id', 'send the items of the turns before instead'],
  ['conversation', 'send the items of the conversation instead'],
  ['prompt', 'send the text of the prompt as instructions instead'],
])

/**
 * The first member of a Responses request that hides a part of the prompt; null when all is
 * visible. README.md, What is refused, has the list. Inputs and outputs of tools are texts: they
 * are not searched.
 */
export function findHiddenInResponses(request: JsonObject): RefusedMember | null {
  if (memberOf(request, 'background') === true)
    return {
      path: ['background'],
      why: 'the answer of a background call is not a part of the call',
    }
  return (
    findGiven(request, KEPT_ELSEWHERE) ??
    findReference(memberOf(request, 'input') ?? null, ['input'], hiddenInput) ??
    findReference(memberOf(request, 'tools') ?? null, ['tools'], hiddenInTools)
  )
}

function hiddenInput(item: JsonObject): string | null {
  // A reference may leave its type out. A message may too, but a message has a role.
  const isReference =
    item.type === 'item_reference' ||
    ((item.type ?? null) === null && typeof item.id === 'string' && item.role === undefined)
  if (isReference) return 'send the item itself instead of a reference'
  if (typeof item.file_id === 'string') return 'send the content of the file instead of its id'
  return null
}

function hiddenInTools(tool: JsonObject): string | null {
  return tool.type === 'code_interpreter' && typeof tool.container === 'string'
    ? 'name a container of type auto instead of a container by its id'
    : null
}
