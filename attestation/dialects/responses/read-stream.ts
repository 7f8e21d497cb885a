import { isCount, type JsonObject, memberOf } from '../../json/value.ts'
import { withoutPrototypes } from '../../json/without-prototypes.ts'
import {
  type DialectEvent,
  eventNameOf,
  failureOf,
  isEmpty,
  isSame,
  listIn,
  objectIn,
  refuse,
  type StreamReader,
  textIn,
  withoutProof,
} from '../dialect.ts'
import { checkStatus, readResponse, TERMINALS } from './answer.ts'
import {
  beginItem,
  CHANNELS,
  channelOf,
  checkInput,
  checkItem,
  checkPart,
  itemBefore,
  type PartList,
  type StreamedItem,
  type StreamedPart,
  type StreamedText,
  withId,
} from './item.ts'

/** Events at the start of a response. Some providers leave out the last two. */
const BEGINNINGS = ['response.created', 'response.queued', 'response.in_progress']

/** How the names of part events begin, by the list that holds the part. */
const PART_EVENT = { content: 'response.content_part', summary: 'response.reasoning_summary_part' }
const PART_INDEX = { content: 'content_index', summary: 'summary_index' } as const

/** Progress events without content, such as `response.web_search_call.searching`. */
const PROGRESS_ITEM =
  /^response\.(?:(?:web_search|file_search|code_interpreter|image_generation|mcp)_call|mcp_list_tools)$/
const PROGRESS_VERB = /^(?:in_progress|searching|interpreting|generating|completed|failed)$/

/** Maximum number of annotations that only the end event of a part has. */
const ANNOTATIONS_MAX = 1_000

/**
 * Reads a stream of the Responses API: one response, its items by index, the parts and texts of
 * each item, and the final response (formats.md, Streams).
 */
export class ResponsesReader implements StreamReader {
  /** The responses in the first and the last event. Null before these events. */
  private first: JsonObject | null = null
  private final: JsonObject | null = null
  private readonly items: StreamedItem[] = []
  private readonly byId = new Map<string, StreamedItem>()
  private readonly ids = new Set<string>()
  private message: StreamedItem | null = null
  /** Number of ended items. Items end in order. */
  private ended = 0
  private given: DialectEvent[] = []
  private sequence = 0

  get isEnded(): boolean {
    return this.final !== null
  }

  isLast(type: string): boolean {
    return TERMINALS.has(type)
  }

  read(event: DialectEvent): readonly DialectEvent[] {
    if (this.isEnded) return []
    const type = eventNameOf(event)
    this.given = []
    const data = withoutPrototypes(withoutProof(event.data))
    if (type === 'error') throw refuse('upstream_failure', failureOf(data))
    if (BEGINNINGS.includes(type)) this.begin(type, data)
    else if (TERMINALS.has(type)) this.end(type, data)
    else if (type === 'response.output_item.added') this.addItem(data)
    else if (type === 'response.output_item.done') this.endItem(data)
    else if (!this.readPart(type, data) && !this.readText(type, data)) this.readOther(type, data)
    return this.given
  }

  response(): JsonObject {
    return this.final ?? { ...this.first, output: this.items.map(itemBefore) }
  }

  private begin(type: string, data: JsonObject): void {
    if ((type === 'response.created') !== (this.first === null) || this.items.length > 0)
      throw refuse('changed_identity', 'expected response.created first, and once')
    const response = this.responseIn(data)
    if (!isEmpty(memberOf(response, 'output')) || !isEmpty(memberOf(response, 'error')))
      throw refuse('unread_member', 'expected the response to begin empty')
    this.first ??= response
    // Readers add items to `output`, so it must be a list.
    this.give(type, data, { response: { ...response, output: [] } })
  }

  private end(type: string, data: JsonObject): void {
    this.requireBegun()
    const response = this.responseIn(data)
    if (memberOf(response, 'status') !== TERMINALS.get(type))
      throw refuse('changed_finish', 'expected the status of the response to be that of its event')
    if (type !== 'response.failed' && this.ended < this.items.length)
      throw refuse('unfinished', 'expected every item to have ended')
    checkStatus(response)
    const final = { ...response, output: this.outputOf(response) }
    this.give(type, {}, { response: final })
    this.final = final
  }

  /**
   * The items in their final form, in the order of the stream. The final answer may lack or reorder
   * items, but must have the same texts. In a failed response, an item may lack its end.
   */
  private outputOf(response: JsonObject): readonly JsonObject[] {
    const finals = listIn(response, 'output').map(withId)
    const items = this.items.map(
      (item) => item.done ?? { ...itemBefore(item), status: 'incomplete' },
    )
    if (finals.length > 0 && finals.length !== this.ended && finals.length !== items.length)
      throw refuse('changed_text', 'expected the final answer to have the items that streamed')
    const seen = new Set<StreamedItem>()
    for (const final of finals) {
      const item = this.byId.get(textIn(final, 'id'))
      if (item === undefined || seen.has(item))
        throw refuse('changed_text', 'expected the final answer to have the items that streamed')
      seen.add(item)
      if (item.done !== null) checkItem(item, final)
      else if (!isSame(final, items[item.index] ?? {}))
        throw refuse('changed_text', 'expected an item that did not end as it streamed')
    }
    return items
  }

  private addItem(data: JsonObject): void {
    this.requireBegun()
    const index = this.items.length
    if ((memberOf(data, 'output_index') ?? index) !== index)
      throw refuse('changed_identity', 'expected the indexes of items to count up')
    const item = beginItem(index, withId(objectIn(data, 'item')), this.ids)
    if (item.added.type === 'message') {
      // Readers that show texts immediately would mix the texts of two open messages.
      if (this.message !== null && this.message.done === null)
        throw refuse('unfinished', 'expected the message before to have ended')
      this.message = item
    }
    this.items.push(item)
    this.byId.set(item.id, item)
    this.give('response.output_item.added', data, { output_index: index, item: item.added })
  }

  private endItem(data: JsonObject): void {
    const done = withId(objectIn(data, 'item'))
    const index = memberOf(data, 'output_index') ?? undefined
    const item = this.openItem(index === undefined ? { item_id: textIn(done, 'id') } : data)
    // Items must end in order: some readers sort by index, others by time of end.
    if (item.index !== this.ended)
      throw refuse('unfinished', 'expected the items before to have ended')
    checkItem(item, done)
    for (const list of ['content', 'summary'] as const)
      for (const part of item.parts[list])
        this.closePart(item, part, listIn(done, list)[part.index] ?? {})
    if (item.whole !== null) this.closeText(item, item.whole)
    item.done = done
    this.ended += 1
    this.give('response.output_item.done', data, { output_index: item.index, item: done })
  }

  /** Returns false for an event that is not the start or the end of a part. */
  private readPart(type: string, data: JsonObject): boolean {
    const [event, verb] = splitName(type)
    const list = (['content', 'summary'] as const).find((each) => PART_EVENT[each] === event)
    if (list === undefined || (verb !== 'added' && verb !== 'done')) return false
    const item = this.openItem(data)
    const given = objectIn(data, 'part')
    if (verb === 'added') {
      this.beginPart(item, list, { data, given })
      return true
    }
    const part = this.openPart(item, list, data)
    checkPart(part, given)
    if (part.isClosed) throw refuse('late_event', 'expected one end of a part')
    this.closePart(item, part, given, data)
    return true
  }

  private beginPart(
    item: StreamedItem,
    list: PartList,
    { data, given }: { readonly data: JsonObject; readonly given: JsonObject },
  ): void {
    const parts = item.parts[list]
    const channel = channelOf(item.added, list, given)
    if ((memberOf(data, PART_INDEX[list]) ?? parts.length) !== parts.length)
      throw refuse('changed_identity', 'expected the indexes of parts to count up')
    const { member = '' } = CHANNELS.get(channel) ?? {}
    if (!isEmpty(memberOf(given, member)) || !isEmpty(memberOf(given, 'annotations')))
      throw refuse('unread_member', `expected ${member} to be empty at the start of a part`)
    const last = parts.at(-1)
    if (last !== undefined) this.closePart(item, last, { annotations: last.annotations })
    const index = parts.length
    const part = { channel, text: '', index, annotations: [], isDone: false, isClosed: false }
    parts.push(part)
    // Readers append deltas to this member, so the member must exist.
    const settled = { ...given, [member]: '' }
    this.give(`${PART_EVENT[list]}.added`, data, { ...this.placeOf(item, part), part: settled })
  }

  /** Returns false for an event that is not a delta or the end of a text. */
  private readText(type: string, data: JsonObject): boolean {
    const [event, verb] = splitName(type)
    const channel = CHANNELS.get(event)
    if (channel === undefined || (verb !== 'delta' && verb !== 'done')) return false
    const item = this.openItem(data)
    if (!channel.items.includes(textIn(item.added, 'type')))
      throw refuse('changed_type', 'expected a text that its item can have')
    const piece = textIn(data, verb === 'delta' ? 'delta' : channel.member)
    const name = memberOf(data, 'name') ?? null
    if (name !== null && name !== item.added.name)
      throw refuse('changed_identity', 'expected the name of the item')
    const text = this.textOf(item, event, { data, isDelta: verb === 'delta' })
    if (text.isDone) throw refuse('late_event', 'expected no event after the end of its text')
    if (verb === 'delta') text.text += piece
    else if (text.text !== piece)
      throw refuse('changed_text', 'expected a text at its end as it streamed')
    else checkInput(event, piece)
    text.isDone = verb === 'done'
    this.give(type, data, this.placeOf(item, text))
    return true
  }

  /** The text that an event continues. If a part has no start event, its first delta begins it. */
  private textOf(
    item: StreamedItem,
    channel: string,
    { data, isDelta }: { readonly data: JsonObject; readonly isDelta: boolean },
  ): StreamedText {
    const { part, member } = CHANNELS.get(channel) ?? {}
    if (part === undefined || part === null) {
      item.whole ??= { channel, text: '', isDone: false }
      return item.whole
    }
    const parts = item.parts[part.list]
    const index = memberOf(data, PART_INDEX[part.list]) ?? Math.max(0, parts.length - 1)
    if (index === parts.length && isDelta) {
      const empty = { type: part.type, [member ?? '']: '' }
      const given = part.type === 'output_text' ? { ...empty, annotations: [] } : empty
      this.beginPart(item, part.list, { data: {}, given })
    }
    const open = this.openPart(item, part.list, { [PART_INDEX[part.list]]: index })
    if (open.channel !== channel || open.isClosed)
      throw refuse('changed_type', 'expected a delta of the type of its part')
    return open
  }

  /** Events that are neither annotations nor progress are left out. */
  private readOther(type: string, data: JsonObject): void {
    const [event, verb] = splitName(type)
    if (type === 'response.output_text.annotation.added') {
      const item = this.openItem(data)
      const part = this.openPart(item, 'content', data)
      if (part.channel !== 'response.output_text' || part.isClosed)
        throw refuse('changed_type', 'expected an annotation of a text that is open')
      if (
        (memberOf(data, 'annotation_index') ?? part.annotations.length) !== part.annotations.length
      )
        throw refuse('changed_identity', 'expected the indexes of annotations to count up')
      part.annotations.push(objectIn(data, 'annotation'))
      const annotation_index = part.annotations.length - 1
      this.give(type, data, { ...this.placeOf(item, part), annotation_index })
    } else if (PROGRESS_ITEM.test(event) && PROGRESS_VERB.test(verb)) {
      const item = this.openItem(data)
      if (event !== `response.${item.added.type}`)
        throw refuse('changed_type', 'expected an event of the type of its item')
      this.give(type, data, this.placeOf(item, null))
    }
  }

  /**
   * Sends the events that end a part, because some providers omit them. `sent`: the data of the
   * last event, if the provider sent it.
   */
  private closePart(item: StreamedItem, part: StreamedPart, end: JsonObject, sent?: JsonObject) {
    if (part.isClosed) return
    this.giveAnnotations(item, part, end)
    this.closeText(item, part)
    part.isClosed = true
    const { part: place, member } = CHANNELS.get(part.channel) ?? {}
    const { list, type } = place ?? { list: 'content', type: '' }
    const text = { type, [member ?? '']: part.text }
    const settled = type === 'output_text' ? { ...text, annotations: [...part.annotations] } : text
    this.give(`${PART_EVENT[list]}.done`, sent ?? { part: settled }, this.placeOf(item, part))
  }

  /** Sends an event for each annotation that was not streamed. `end` is the part's end event. */
  private giveAnnotations(item: StreamedItem, part: StreamedPart, end: JsonObject): void {
    const missing = listIn(end, 'annotations').slice(part.annotations.length)
    if (missing.length > ANNOTATIONS_MAX)
      throw refuse('invalid_form', `expected at most ${ANNOTATIONS_MAX} annotations at once`)
    for (const annotation of missing) {
      const place = { ...this.placeOf(item, part), annotation_index: part.annotations.length }
      part.annotations.push(annotation)
      this.give('response.output_text.annotation.added', { annotation }, place)
    }
  }

  private closeText(item: StreamedItem, text: StreamedText): void {
    if (text.isDone) return
    text.isDone = true
    const member = CHANNELS.get(text.channel)?.member ?? ''
    this.give(`${text.channel}.done`, { [member]: text.text }, this.placeOf(item, text))
  }

  /** The item that an event belongs to. Some providers send only its id, others only its index. */
  private openItem(data: JsonObject): StreamedItem {
    this.requireBegun()
    const index = memberOf(data, 'output_index') ?? null
    const id = memberOf(data, 'item_id') ?? null
    const found =
      index === null
        ? this.byId.get(typeof id === 'string' ? id : '')
        : this.items[isCount(index) ? index : -1]
    if (found === undefined || (id !== null && found.id !== id))
      throw refuse('changed_identity', 'expected an event of an item that has begun')
    if (found.done !== null)
      throw refuse('late_event', 'expected no event after the end of its item')
    return found
  }

  private openPart(item: StreamedItem, list: PartList, data: JsonObject): StreamedPart {
    const parts = item.parts[list]
    const index = memberOf(data, PART_INDEX[list]) ?? parts.length - 1
    const part = index === parts.length - 1 ? parts.at(-1) : undefined
    if (part !== undefined) return part
    throw refuse('late_event', 'expected an event of the part that is open')
  }

  private placeOf(item: StreamedItem, text: StreamedText | null): JsonObject {
    const place = { output_index: item.index, item_id: item.id }
    const list = text === null ? undefined : CHANNELS.get(text.channel)?.part?.list
    if (list === undefined) return place
    return { ...place, [PART_INDEX[list]]: (text as StreamedPart).index }
  }

  /** The id and the model must not change. llama.cpp states the model only at the end. */
  private responseIn(data: JsonObject): JsonObject {
    const response = readResponse(objectIn(data, 'response'))
    const { first } = this
    if (first === null) return response
    const lacksModel = isEmpty(memberOf(first, 'model'))
    for (const name of lacksModel ? ['id'] : ['id', 'model'])
      if (memberOf(first, name) !== memberOf(response, name))
        throw refuse('changed_identity', `expected the ${name} of the response as at its start`)
    if (lacksModel) this.first = { ...first, model: memberOf(response, 'model') ?? null }
    return response
  }

  private requireBegun(): void {
    if (this.first === null) throw refuse('invalid_form', 'expected response.created first')
  }

  private give(type: string, data: JsonObject, settled: JsonObject): void {
    const given = { ...data, ...settled, type, sequence_number: this.sequence }
    this.sequence += 1
    this.given.push({ event: type, data: given })
  }
}

/** Splits the name of an event at its last dot. */
function splitName(type: string): readonly [string, string] {
  const dot = type.lastIndexOf('.')
  return [type.slice(0, dot), type.slice(dot + 1)]
}
