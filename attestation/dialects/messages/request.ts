import { isJsonObject, type JsonObject, memberOf } from '../../json/value.ts'
import { findGiven, findReference, type RefusedMember } from '../refused-member.ts'

/** What the provider keeps, so that a request with it does not say what was asked. */
const KEPT_ELSEWHERE: ReadonlyMap<string, string> = new Map([
  ['thread', 'send the messages of the thread instead'],
])

/**
 * The first member of a Messages request that hides what was asked; null when all is shown:
 * README.md, What is refused.
 */
export function findHiddenInMessages(request: JsonObject): RefusedMember | null {
  const container = memberOf(request, 'container') ?? null
  const isById =
    typeof container === 'string' || (isJsonObject(container) && typeof container.id === 'string')
  if (isById) return { path: ['container'], why: 'leave the container out instead of its id' }
  return (
    findGiven(request, KEPT_ELSEWHERE) ??
    findReference(memberOf(request, 'messages') ?? null, ['messages'], hiddenInput) ??
    findReference(memberOf(request, 'system') ?? null, ['system'], hiddenInput)
  )
}

function hiddenInput(block: JsonObject): string | null {
  const isFile =
    (block.type === 'file' && typeof block.file_id === 'string') ||
    (block.type === 'container_upload' && typeof block.file_id === 'string')
  return isFile ? 'send the content of the file instead of its id' : null
}
