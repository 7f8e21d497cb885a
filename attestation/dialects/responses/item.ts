import { isJsonObject, type Json, type JsonObject, memberOf } from '../../json/value.ts'
import { orNull } from '../../or-null.ts'
import { addId, isEmpty, isSame, listIn, refuse, textIn } from '../dialect.ts'
import { parseToolInput } from '../tool-input.ts'

/** The lists in an item that hold streamed parts. */
export type PartList = 'content' | 'summary'

/** A streamed text is a part of an item, or a member of the item. */
type Channel = {
  /** Types of items that can have this text. */
  readonly items: readonly string[]
  /** The member with the joined text: in the item or its part, and in the `done` event. */
  readonly member: string
  /** Null if the text is a member of the item itself. */
  readonly part: { readonly list: PartList; readonly type: string } | null
}

/** Keys: names of events without `.delta` or `.done`. */
export const CHANNELS: ReadonlyMap<string, Channel> = new Map([
  ['response.output_text', ofPart(['message'], 'content', 'output_text', 'text')],
  ['response.refusal', ofPart(['message'], 'content', 'refusal', 'refusal')],
  ['response.reasoning_text', ofPart(['reasoning'], 'content', 'reasoning_text', 'text')],
  ['response.reasoning_summary_text', ofPart(['reasoning'], 'summary', 'summary_text', 'text')],
  ['response.function_call_arguments', ofItem('function_call', 'arguments')],
  ['response.custom_tool_call_input', ofItem('custom_tool_call', 'input')],
  ['response.mcp_call_arguments', ofItem('mcp_call', 'arguments')],
  ['response.code_interpreter_call_code', ofItem('code_interpreter_call', 'code')],
])

function ofPart(items: readonly string[], list: PartList, type: string, member: string): Channel {
  return { items, member, part: { list, type } }
}

function ofItem(item: string, member: string): Channel {
  return { items: [item], member, part: null }
}

/** Members of any item that may change after its start. */
const CHANGING = ['status', 'encrypted_content', 'fingerprint']

function memberOfItem({ part, member }: Channel): string {
  return part?.list ?? member
}

/** Characters. The id is written into each event of the item. */
const ID_LENGTH_MAX = 1_024

/** Items that callers answer. Readers find a call by its id, and a tool by its name. */
const CALLS = ['function_call', 'custom_tool_call']

/** The text so far. Changed in place. */
export type StreamedText = {
  readonly channel: string
  text: string
  /** True if the callers got the `done` event of this text. */
  isDone: boolean
}

export type StreamedPart = StreamedText & {
  readonly index: number
  readonly annotations: Json[]
  /** True if the callers got the event that ends the part. */
  isClosed: boolean
}

/** An item that has begun in one stream's output. Changed in place. */
export type StreamedItem = {
  readonly index: number
  readonly id: string
  readonly added: JsonObject
  readonly parts: Readonly<Record<PartList, StreamedPart[]>>
  /** The streamed member of the item. Null before its first delta. */
  whole: StreamedText | null
  /** The final form of the item. Null before its end. */
  done: JsonObject | null
}

/** Adds a missing id to an item. llama.cpp sends only `call_id` and uses it as the item's id. */
export function withId(item: JsonObject): JsonObject {
  const call = memberOf(item, 'call_id')
  return isEmpty(memberOf(item, 'id')) && typeof call === 'string' ? { ...item, id: call } : item
}

/**
 * Adds missing members that deltas fill, because readers append to them. Throws FormatError
 * `unread_member` if such a member already has text, which readers of deltas would not show;
 * `invalid_form` for a message whose role is not assistant, or a call without an id or a name;
 * `changed_identity` for an id that is in `ids`.
 */
export function beginItem(index: number, given: JsonObject, ids: Set<string>): StreamedItem {
  const type = textIn(given, 'type')
  const added: Record<string, Json> = { ...given }
  for (const [, channel] of channelsOf(given)) {
    const name = memberOfItem(channel)
    if (!isEmpty(memberOf(given, name)))
      throw refuse('unread_member', `expected ${name} to be empty at the start of an item`)
    // Providers leave out the content of reasoning, and readers accept that.
    if (type !== 'reasoning' || name !== 'content') added[name] = channel.part === null ? '' : []
  }
  if (type === 'message' && memberOf(added, 'role') !== 'assistant')
    throw refuse('invalid_form', 'expected a message of the assistant')
  if (CALLS.includes(type) && (textIn(added, 'call_id') === '' || textIn(added, 'name') === ''))
    throw refuse('invalid_form', 'expected a call to have an id and a name')
  const id = textIn(added, 'id')
  if (id.length > ID_LENGTH_MAX)
    throw refuse('invalid_form', `expected an id of at most ${ID_LENGTH_MAX} characters`)
  addId(ids, [id])
  // Includes the type, because a tool's answer has the same id as its call.
  addId(ids, [type, memberOf(added, 'call_id') ?? null])
  return { index, id, added, parts: { content: [], summary: [] }, whole: null, done: null }
}

/** Checks a whole item like a streamed one. `hasEnded`: false if its last text may be cut. */
export function checkWholeItem(item: JsonObject, ids: Set<string>, hasEnded: boolean): void {
  const begun: Record<string, Json> = { ...item }
  for (const [channel, { member, part }] of channelsOf(item)) {
    begun[part?.list ?? member] = null
    for (const given of part === null ? [] : listIn(item, part.list)) {
      const name = channelOf(item, part?.list, given)
      textIn(given, CHANNELS.get(name)?.member ?? '')
      annotationsOf(given, name)
    }
    const text = memberOf(item, member) ?? ''
    if (part === null && text !== '') textIn(item, member)
    if (part === null && (hasEnded || isJson(String(text)))) checkInput(channel, text)
  }
  beginItem(0, begun, ids)
}

/** Returns true if a reader could parse the text as a whole input. */
function isJson(text: string): boolean {
  return orNull(() => [JSON.parse(text)], SyntaxError) !== null
}

function channelsOf(item: JsonObject): readonly (readonly [string, Channel])[] {
  return [...CHANNELS].filter(([, { items }]) => items.includes(textIn(item, 'type')))
}

/** Throws FormatError `changed_type` if the item cannot have a part of this type. */
export function channelOf(item: JsonObject, list: PartList | undefined, given: JsonObject): string {
  for (const [channel, { part }] of channelsOf(item))
    if (part?.list === list && part?.type === given.type) return channel
  throw refuse('changed_type', 'expected a part that its item can have')
}

/** Throws FormatError `invalid_form` if a part other than the text of a message has annotations. */
function annotationsOf(part: JsonObject, channel: string): readonly JsonObject[] {
  const annotations = listIn(part, 'annotations')
  if (annotations.length === 0 || channel === 'response.output_text') return annotations
  throw refuse('invalid_form', 'expected annotations only of the text of a message')
}

/**
 * Compares an item, from its end event or the final answer, with its streamed texts. Throws
 * FormatError `changed_identity`, `changed_text`, `invalid_tool_input`.
 */
export function checkItem(item: StreamedItem, done: JsonObject): void {
  const { added, parts, whole } = item
  const streamed = channelsOf(added).map(([, channel]) => memberOfItem(channel))
  const changing = [...CHANGING, ...streamed]
  for (const [name, value] of Object.entries(added))
    if (!changing.includes(name) && !fills(value, memberOf(done, name)))
      throw refuse('changed_identity', `expected ${name} of an item as at its start`)
  for (const name of ['role', 'call_id', 'name', 'phase', 'namespace'])
    if (isEmpty(memberOf(added, name)) && !isEmpty(memberOf(done, name)))
      throw refuse('changed_identity', `expected ${name} of an item at its start`)
  for (const list of ['content', 'summary'] as const) {
    if (!channelsOf(added).some(([, { part }]) => part?.list === list)) continue
    const given = listIn(done, list)
    if (given.length !== parts[list].length)
      throw refuse('changed_text', `expected the parts of ${list} that streamed`)
    for (const [at, part] of parts[list].entries()) checkPart(part, given[at] ?? {})
  }
  for (const [channel, { member, part }] of channelsOf(added)) {
    if (part !== null) continue
    const text = memberOf(done, member) ?? ''
    if (text !== (whole?.text ?? ''))
      throw refuse('changed_text', `expected ${member} of an item as it streamed`)
    checkInput(channel, text)
  }
}

/** Returns true if `end` has all that `start` states. What was empty may have any value. */
function fills(start: Json, end: Json | undefined): boolean {
  if (isEmpty(start)) return true
  if (!isJsonObject(start)) return isSame(start, end ?? null)
  const filled = isJsonObject(end) ? end : {}
  return Object.entries(start).every(([name, value]) => fills(value, memberOf(filled, name)))
}

/** Throws FormatError `invalid_tool_input` for arguments that are not a JSON object. */
export function checkInput(channel: string, text: Json): void {
  if (channel === 'response.function_call_arguments') parseToolInput(String(text))
}

/**
 * Compares a part at its end with its streamed text. The part's annotations must begin with the
 * streamed annotations. Throws FormatError `changed_text`.
 */
export function checkPart(streamed: StreamedPart, given: JsonObject): void {
  const { channel, text, annotations, isClosed } = streamed
  const { member, part } = CHANNELS.get(channel) as Channel
  if (memberOf(given, 'type') !== part?.type || memberOf(given, member) !== text)
    throw refuse('changed_text', 'expected a part as it streamed')
  const stated = annotationsOf(given, channel)
  const known = isClosed ? stated : stated.slice(0, annotations.length)
  if (!isSame(known, annotations))
    throw refuse('changed_text', 'expected the annotations that streamed')
}

/** The item, assembled from its events so far. */
export function itemBefore({ added, parts, whole, done }: StreamedItem): JsonObject {
  if (done !== null) return done
  const item: Record<string, Json> = { ...added }
  for (const [list, streamed] of Object.entries(parts))
    if (streamed.length > 0) item[list] = streamed.map(partBefore)
  if (whole !== null) item[(CHANNELS.get(whole.channel) as Channel).member] = whole.text
  return item
}

function partBefore({ channel, text, annotations }: StreamedPart): JsonObject {
  const { member, part } = CHANNELS.get(channel) as Channel
  const streamed = { type: part?.type ?? '', [member]: text }
  return annotations.length === 0 ? streamed : { ...streamed, annotations: [...annotations] }
}
