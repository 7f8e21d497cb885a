import { isJsonArray, type Json, type JsonObject, memberAt, memberOf } from '../../json/value.ts'
import { isEmpty } from '../dialect.ts'
import { findGiven, findReference, type RefusedMember } from '../refused-member.ts'

/** Members that refer to content stored at the provider, so they hide a part of the prompt. */
const KEPT_ELSEWHERE: ReadonlyMap<string, string> = new Map([
  ['thread', 'send the messages of the thread instead'],
])

/**
 * Finds the first member of a Messages request that hides a part of the prompt (formats.md, What is
 * refused). Returns null if all of the prompt is visible.
 */
export function findHiddenInMessages(request: JsonObject): RefusedMember | null {
  const container = memberOf(request, 'container') ?? null
  const skills = memberAt(container, 'skills')
  const isById =
    typeof container === 'string' ||
    typeof memberAt(container, 'id') === 'string' ||
    !(isEmpty(skills) || (isJsonArray(skills) && skills.every(isBuiltIn)))
  if (isById) return { path: ['container'], why: 'leave the container out instead of its id' }
  return (
    findGiven(request, KEPT_ELSEWHERE) ??
    findReference(memberOf(request, 'messages') ?? null, ['messages'], hiddenInput) ??
    findReference(memberOf(request, 'system') ?? null, ['system'], hiddenInput)
  )
}

/** Anthropic publishes its own skills. All other skills are stored for one caller. */
function isBuiltIn(skill: Json): boolean {
  return memberAt(skill, 'type') === 'anthropic'
}

function hiddenInput(block: JsonObject): string | null {
  const isFile =
    typeof block.file_id === 'string' &&
    (isEmpty(memberOf(block, 'type')) || FILES.includes(String(block.type)))
  return isFile ? 'send the content of the file instead of its id' : null
}

const FILES = ['file', 'container_upload']
