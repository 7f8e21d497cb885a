import { FormatError } from '../../errors.ts'
import { type JsonObject, memberOf } from '../../json/value.ts'
import { orNull } from '../../or-null.ts'
import { listIn, textIn } from '../dialect.ts'
import { parseToolInput } from '../tool-input.ts'
import { CHANNELS, type PartList, withId } from './item.ts'

/**
 * The events of a stream that assembles to this response, without the events that ResponsesReader
 * adds. Throws FormatError `invalid_form`.
 */
export function eventsOfResponse(response: JsonObject): readonly JsonObject[] {
  const beginning = { status: 'in_progress', output: [], error: null, incomplete_details: null }
  const usage: JsonObject = Object.hasOwn(response, 'usage') ? { usage: null } : {}
  const items = listIn(response, 'output').map(withId)
  const cut = items.findIndex(isCutCall)
  return [
    { type: 'response.created', response: { ...response, ...beginning, ...usage } },
    ...items.flatMap((item, at) => {
      const events = eventsOfItem(item, at)
      return cut < 0 || at < cut ? [...events, doneOf(item, at)] : events
    }),
    { type: `response.${textIn(response, 'status')}`, response },
  ]
}

/** True if a failure cut this call. Items end in order, so no later item has an end. */
function isCutCall(item: JsonObject): boolean {
  return (
    item.type === 'function_call' &&
    orNull(() => parseToolInput(textIn(item, 'arguments')), FormatError) === null
  )
}

function doneOf(item: JsonObject, output_index: number): JsonObject {
  return { type: 'response.output_item.done', output_index, item }
}

function eventsOfItem(item: JsonObject, output_index: number): readonly JsonObject[] {
  const type = textIn(item, 'type')
  const place = { output_index, item_id: textIn(item, 'id') }
  const added: Record<string, JsonObject[string]> = { ...item }
  if (Object.hasOwn(item, 'status')) added.status = 'in_progress'
  const deltas: JsonObject[] = []
  for (const [name, { items, member, part }] of CHANNELS) {
    if (!items.includes(type)) continue
    const emptied = part?.list ?? member
    if (!Object.hasOwn(item, emptied)) continue
    added[emptied] = part === null ? '' : []
    const text = memberOf(item, member) ?? null
    if (part === null && text !== null)
      deltas.push({ type: `${name}.delta`, ...place, delta: textIn(item, member) })
  }
  for (const list of ['summary', 'content'] as const)
    if (added[list] !== item[list]) deltas.push(...deltasOfParts(item, list, place))
  return [{ type: 'response.output_item.added', output_index, item: added }, ...deltas]
}

function deltasOfParts(item: JsonObject, list: PartList, place: JsonObject): readonly JsonObject[] {
  const indexName = list === 'content' ? 'content_index' : 'summary_index'
  return listIn(item, list).flatMap((given, index) => {
    const at = { ...place, [indexName]: index }
    for (const [name, { member, part }] of CHANNELS)
      if (part?.list === list && part.type === memberOf(given, 'type'))
        return [
          { type: `${name}.delta`, ...at, delta: textIn(given, member) },
          ...listIn(given, 'annotations').map((annotation) => ({
            type: 'response.output_text.annotation.added',
            ...at,
            annotation,
          })),
        ]
    return []
  })
}
