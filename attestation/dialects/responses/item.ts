import { isJsonObject, type Json, type JsonObject, memberOf } from '../../json/value.ts'
import { isEmpty, isSame, listIn, refuse, textIn } from '../dialect.ts'

/** The lists in an item that hold streamed parts. */
export type PartList = 'content' | 'summary'

/** A streamed text is a part of an item, or a member of the item. */
export type TextChannel = {
  /** The name of its events without `.delta` or `.done`. */
  readonly name: string
  /** The type of the items that can have this text. */
  readonly item: string
  /** The member with the joined text: in the item or its part, and in the `done` event. */
  readonly member: string
  /** The list and the type of the part. Null and '' if the text is a member of the item itself. */
  readonly list: PartList | null
  readonly type: string
}

const CHANNEL_ROWS: readonly (readonly [string, string, string, PartList | null, string])[] = [
  ['response.output_text', 'message', 'text', 'content', 'output_text'],
  ['response.refusal', 'message', 'refusal', 'content', 'refusal'],
  ['response.reasoning_text', 'reasoning', 'text', 'content', 'reasoning_text'],
  ['response.reasoning_summary_text', 'reasoning', 'text', 'summary', 'summary_text'],
  ['response.function_call_arguments', 'function_call', 'arguments', null, ''],
  ['response.custom_tool_call_input', 'custom_tool_call', 'input', null, ''],
  ['response.mcp_call_arguments', 'mcp_call', 'arguments', null, ''],
  ['response.code_interpreter_call_code', 'code_interpreter_call', 'code', null, ''],
]

/** By the name of their events. */
export const CHANNELS: ReadonlyMap<string, TextChannel> = new Map(
  CHANNEL_ROWS.map(([name, item, member, list, type]) => [
    name,
    { name, item, member, list, type },
  ]),
)

/** The lists of an item that hold parts, in the order of their events. */
export const PART_LISTS = ['content', 'summary'] as const

/** How the names of part events begin, by the list that holds the part. */
export const PART_EVENT = {
  content: 'response.content_part',
  summary: 'response.reasoning_summary_part',
} as const
export const PART_INDEX = { content: 'content_index', summary: 'summary_index' } as const

/** Progress events without content, such as `response.web_search_call.searching`. */
const PROGRESS_ITEM =
  /^response\.((?:web_search|file_search|code_interpreter|image_generation|mcp)_call|mcp_list_tools)$/
const PROGRESS_VERB = /^(?:in_progress|searching|interpreting|generating|completed|failed)$/

export const ITEM_ADDED = 'response.output_item.added'
export const ITEM_DONE = 'response.output_item.done'
export const ANNOTATION_ADDED = 'response.output_text.annotation.added'

/** Items that callers answer. Readers find a call by its id, and a tool by its name. */
const CALLS = ['function_call', 'custom_tool_call']

/** Members of any item that may change after its start. */
export const CHANGING = ['status', 'encrypted_content', 'fingerprint']

/** Splits the name of an event at its last dot. */
export function splitName(type: string): readonly [string, string] {
  const dot = type.lastIndexOf('.')
  return [type.slice(0, dot), type.slice(dot + 1)]
}

/** True for an event of one item. All others, except those of the response, are left out. */
export function isItemEvent(type: string): boolean {
  const [event, verb] = splitName(type)
  if (event === 'response.output_item' || PART_LIST_OF.has(event))
    return verb === 'added' || verb === 'done'
  if (CHANNELS.has(event)) return verb === 'delta' || verb === 'done'
  return type === ANNOTATION_ADDED || progressItem(type) !== null
}

/** The list whose parts an event begins and ends, by the name of the event without its verb. */
export const PART_LIST_OF: ReadonlyMap<string, PartList> = new Map(
  PART_LISTS.map((list) => [PART_EVENT[list], list]),
)

/** The type of the item whose progress an event reports. Null for other events. */
export function progressItem(type: string): string | null {
  const [event, verb] = splitName(type)
  return PROGRESS_VERB.test(verb) ? (PROGRESS_ITEM.exec(event)?.[1] ?? null) : null
}

/**
 * True if an item is shown only at its end, because it has no texts and no progress, or lacks the
 * members by which readers find it. Providers correct such items at their end.
 */
export function isShownAtEnd(start: JsonObject): boolean {
  if (isCall(start)) return ['call_id', 'name'].some((name) => isEmpty(memberOf(start, name)))
  const hasProgress = progressItem(`response.${start.type}.completed`) !== null
  return channelsOf(start).length === 0 && !hasProgress
}

export function isCall({ type = null }: JsonObject): boolean {
  return CALLS.includes(String(type))
}

export function channelsOf(start: JsonObject): readonly TextChannel[] {
  const type = textIn(start, 'type')
  return [...CHANNELS.values()].filter(({ item }) => item === type)
}

/** Throws FormatError `changed_type` if the item cannot have a part of this type. */
export function channelOf(item: JsonObject, list: PartList | null, part: JsonObject): TextChannel {
  for (const channel of channelsOf(item))
    if (channel.list === list && channel.type === part.type) return channel
  throw refuse('changed_type', 'expected a part that its item can have')
}

/** Throws FormatError `invalid_form` if a part other than the text of a message has annotations. */
export function annotationsOf(part: JsonObject, { type }: TextChannel): readonly JsonObject[] {
  const annotations = listIn(part, 'annotations')
  if (annotations.length === 0 || type === 'output_text') return annotations
  throw refuse('invalid_form', 'expected annotations only of the text of a message')
}

/**
 * The start of an item as callers get it: with the empty members to which readers append deltas.
 * Throws FormatError `invalid_form` for a message whose role is not assistant, or a call without an
 * id or a name.
 */
export function settleStart(given: JsonObject): JsonObject {
  const type = textIn(given, 'type')
  const added: Record<string, Json> = { ...given }
  for (const { list, member } of channelsOf(given)) {
    // Providers leave out the content of reasoning, and readers accept that.
    if (list === null) added[member] = ''
    else if (type !== 'reasoning' || list !== 'content' || Object.hasOwn(given, 'content'))
      added[list] = []
  }
  if (type === 'message' && memberOf(added, 'role') !== 'assistant')
    throw refuse('invalid_form', 'expected a message of the assistant')
  if (isCall(added) && (textIn(added, 'call_id') === '' || textIn(added, 'name') === ''))
    throw refuse('invalid_form', 'expected a call to have an id and a name')
  return added
}

/** Returns true if `end` has all that `start` states. What was empty may have any value. */
export function fills(start: Json, end: Json | undefined): boolean {
  if (isEmpty(start)) return true
  if (!isJsonObject(start)) return isSame(start, end ?? null)
  const filled = isJsonObject(end) ? end : {}
  return Object.entries(start).every(([name, value]) => fills(value, memberOf(filled, name)))
}
