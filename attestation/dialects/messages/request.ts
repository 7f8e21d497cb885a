import { isJsonObject, type JsonObject, memberOf } from '../../json/value.ts'
import { isEmpty, listIn } from '../dialect.ts'
import { findGiven, findReference, type RefusedMember } from '../refused-member.ts'

/** Members that refer to content stored at the provider, so they hide a part of the prompt. */
const KEPT_ELSEWHERE: ReadonlyMap<string, string> = new Map([
  ['thread', 'send the messages of the thread instead'],
])

/**
 * Finds the first member of a Messages request that hides a part of the prompt (README.md, What is
 * refused). Returns null if all of the prompt is visible.
 */
export function findHiddenInMessages(request: JsonObject): RefusedMember | null {
  const container = memberOf(request, 'container') ?? null
  const isById =
    typeof container === 'string' ||
    (isJsonObject(container) &&
      (typeof container.id === 'string' ||
        listIn(container, 'skills').some(({ type }) => type === 'custom')))
  if (isById) return { path: ['container'], why: 'leave the container out instead of its id' }
  return (
    findGiven(request, KEPT_ELSEWHERE) ??
    findReference(memberOf(request, 'messages') ?? null, ['messages'], hiddenInput) ??
    findReference(memberOf(request, 'system') ?? null, ['system'], hiddenInput)
  )
}

function hiddenInput(block: JsonObject): string | null {
  const isFile =
    typeof block.file_id === 'string' &&
    (isEmpty(memberOf(block, 'type')) || FILES.includes(String(block.type)))
  return isFile ? 'send the content of the file instead of its id' : null
}

const FILES = ['file', 'container_upload']
