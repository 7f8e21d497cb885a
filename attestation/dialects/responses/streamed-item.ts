import { type Json, type JsonObject, memberOf } from '../../json/value.ts'
import { isEmpty, isSame, listIn, objectIn, refuse, textIn } from '../dialect.ts'
import { readToolInput } from '../tool-input.ts'
import {
  ANNOTATION_ADDED,
  annotationsOf,
  CHANGING,
  CHANNELS,
  channelOf,
  channelsOf,
  fills,
  ITEM_ADDED,
  ITEM_DONE,
  isCall,
  isShownAtEnd,
  PART_EVENT,
  PART_INDEX,
  PART_LIST_OF,
  PART_LISTS,
  type PartList,
  progressItem,
  settleStart,
  splitName,
  type TextChannel,
} from './item.ts'

/** Maximum number of annotations, and of parts, that only one event has: each becomes events. */
const WRITTEN_OUT_MAX = 1_000

/** Characters. The id is written into each event of the item. */
const ID_LENGTH_MAX = 1_024

/** The text so far. Changed in place. */
type StreamedText = {
  readonly channel: string
  text: string
  /** True if the callers got the `done` event of this text. */
  isDone: boolean
}

type StreamedPart = StreamedText & {
  readonly index: number
  readonly annotations: Json[]
  /** The provider's event that ends the part, held because the item's end may have annotations. */
  end: JsonObject | null
  /** True if the callers got the event that ends the part. */
  isClosed: boolean
}

/** Gives an event to the callers: the provider's data with the members of `settled`. */
type Give = (type: string, data: JsonObject, settled: JsonObject) => void

type Terms = {
  readonly give: Give
  /** False for a stream that an enclave gave out: its events come when they are complete. */
  readonly mayHold: boolean
}

/** An item of one stream's output. Its events wait here until they can be given. */
export class StreamedItem {
  readonly index: number
  /** The `output_index` of the provider. */
  readonly place: Json
  id: string | null
  /** The start as callers got it. Null while it waits. */
  added: JsonObject | null = null
  /** The final form of the item. Null before its end. */
  done: JsonObject | null = null
  /** True if the input of a tool was cut. */
  isCut = false
  waiting: JsonObject[] = []
  /** The item in the provider's last event of this item. Null before this event. */
  private end: JsonObject | null = null
  private isEndHeld = false
  private readonly start: JsonObject
  private readonly parts: Record<PartList, StreamedPart[]> = { content: [], summary: [] }
  /** The streamed member of the item. Null before its first event. */
  private whole: StreamedText | null = null
  private readonly terms: Terms

  constructor(index: number, sent: JsonObject, { terms, place }: { terms: Terms; place: Json }) {
    this.index = index
    this.place = place
    this.start = sent
    this.terms = terms
    const item = objectIn(sent, 'item')
    this.id = idOfItem(item)
  }

  get type(): Json {
    return memberOf(objectIn(this.start, 'item'), 'type') ?? null
  }

  get hasEnd(): boolean {
    return this.end !== null
  }

  /** False while the start lacks what only a later event has. */
  get canBegin(): boolean {
    if (this.end !== null) return true
    const isLate = this.terms.mayHold && isShownAtEnd(objectIn(this.start, 'item'))
    return this.id !== null && !isLate
  }

  /** True for the data of an event that only repeats the start. */
  isStart(data: JsonObject): boolean {
    return isSame(objectIn(data, 'item'), objectIn(this.start, 'item'))
  }

  /** Adds an event of this item. Call `readWaiting` to read it. */
  push(event: JsonObject): void {
    if (event.type === ITEM_DONE) this.end ??= objectIn(event, 'item')
    this.id ??= textOrNull(memberOf(event, 'item_id')) ?? (this.end && idOfItem(this.end))
    this.waiting.push(event)
  }

  /** Throws FormatError `invalid_form`, `changed_identity`. */
  begin(): void {
    this.id ??= `item_${this.index}`
    if (this.id.length > ID_LENGTH_MAX)
      throw refuse('invalid_form', `expected an id of at most ${ID_LENGTH_MAX} characters`)
    const given = { ...objectIn(this.start, 'item'), id: this.id }
    const { type: _, ...sent } = this.start
    this.added = settleStart(this.end === null ? given : corrected(given, this.end))
    this.terms.give(ITEM_ADDED, sent, { output_index: this.index, item: this.added })
  }

  /** Reads the events that wait, up to the end of the item unless `mayEnd`. */
  readWaiting(mayEnd: boolean): void {
    if (this.isEndHeld && !mayEnd) return
    const events = this.waiting
    this.waiting = []
    for (const [at, event] of events.entries()) {
      this.isEndHeld = event.type === ITEM_DONE && !mayEnd
      if (this.isEndHeld) {
        this.waiting = events.slice(at)
        return
      }
      this.read(event)
    }
  }

  /** The item, assembled from the events that were given out. */
  before(): JsonObject {
    if (this.done !== null) return this.done
    const item: Record<string, Json> = { ...this.added }
    for (const list of PART_LISTS)
      if (this.parts[list].length > 0) item[list] = this.parts[list].map(partBefore)
    if (this.whole !== null) item[channelNamed(this.whole).member] = this.whole.text
    return item
  }

  /**
   * Compares an item of the final response, which may lack texts, with this item. Throws
   * FormatError `changed_identity`, `changed_text`.
   */
  checkFinal(final: JsonObject): void {
    const done = this.done ?? {}
    for (const name of ['type', 'role', 'call_id', 'name']) {
      const [stated, known] = [memberOf(final, name) ?? null, memberOf(done, name) ?? null]
      if (!isEmpty(stated) && !isEmpty(known) && stated !== known)
        throw refuse('changed_identity', `expected ${name} of an item as at its start`)
    }
    if (!this.hasTexts(final))
      throw refuse('changed_text', 'expected the final answer to have the items that streamed')
  }

  /** True if `other` is an item of this type, and all its texts are those of this item. */
  hasTexts(other: JsonObject): boolean {
    const done = this.before()
    return channelsOf(done).every(([, { member, part }]) => {
      if (part === null) return isAbsentOr(memberOf(other, member), memberOf(done, member))
      const [stated, known] = [listIn(other, part.list), listIn(done, part.list)]
      const texts = (parts: readonly JsonObject[]) =>
        parts.map((each) => [each.type ?? null, each.text ?? each.refusal ?? ''])
      return stated.length === 0 || isSame(texts(stated), texts(known))
    })
  }

  private read(event: JsonObject): void {
    const { type: name, ...data } = event
    const type = String(name)
    const [kind, verb] = splitName(type)
    const list = PART_LIST_OF.get(kind)
    if (this.done !== null) this.readLate(type, data)
    else if (type === ITEM_DONE) this.finish(data)
    else if (list !== undefined) this.readPart(list, verb, data)
    else if (CHANNELS.has(kind)) this.readText(kind, verb, data)
    else if (type === ANNOTATION_ADDED) this.readAnnotation(data)
    else if (progressItem(type) === this.added?.type)
      this.terms.give(type, data, this.placeOf(null))
    else throw refuse('changed_type', 'expected an event of the type of its item')
  }

  /** Leaves out an end that only repeats. */
  private readLate(type: string, data: JsonObject): void {
    const isRepeated =
      type === ITEM_DONE && isSame({ ...objectIn(data, 'item'), id: this.id }, this.done)
    if (!isRepeated) throw refuse('late_event', 'expected no event after the end of its item')
  }

  private finish(data: JsonObject): void {
    const given = objectIn(data, 'item')
    const done: Record<string, Json> = { ...given, id: this.id }
    const added = this.added ?? {}
    const streamed = channelsOf(added).map(([, { member, part }]) => part?.list ?? member)
    for (const [name, value] of Object.entries(added)) {
      if (streamed.includes(name) || CHANGING.includes(name) || name === 'id') continue
      // What the end leaves out is as at the start.
      if (isEmpty(memberOf(given, name)) && !isEmpty(value)) done[name] = value
      else if (!fills(value, memberOf(given, name)))
        throw refuse('changed_identity', `expected ${name} of an item as at its start`)
    }
    for (const list of PART_LISTS) {
      if (!streamed.includes(list)) continue
      const parts = this.endParts(list, given)
      if (parts.length > 0) done[list] = parts
    }
    for (const [channel, { member, part }] of channelsOf(added)) {
      if (part !== null) continue
      const text = this.endWhole(channel, memberOf(given, member))
      // Readers accept an item without code. A call has a text.
      if (text !== '' || isCall(added)) done[member] = text
    }
    this.done = done
    this.terms.give(ITEM_DONE, data, { output_index: this.index, item: done })
  }

  /** The parts at the end of the item. Those that did not stream are written out. */
  private endParts(list: PartList, given: JsonObject): readonly JsonObject[] {
    const parts = this.parts[list]
    const early = listIn(objectIn(this.start, 'item'), list)
    const stated = listIn(given, list).length === 0 ? early : listIn(given, list)
    if (stated.length > 0 && stated.length < parts.length)
      throw refuse('changed_text', `expected the parts of ${list} that streamed`)
    if (stated.length > parts.length + WRITTEN_OUT_MAX)
      throw refuse('invalid_form', `expected at most ${WRITTEN_OUT_MAX} parts at once`)
    for (const [at, part] of stated.entries()) {
      if (at === parts.length) this.beginPart(list, {}, emptied(part))
      this.closePart(parts[at] as StreamedPart, part)
    }
    const last = parts.at(-1)
    if (last !== undefined) this.closePart(last, {})
    for (const [at, part] of early.entries())
      if (!parts[at]?.text.startsWith(textOf(part)))
        throw refuse('unread_member', `expected ${list} to be empty at the start of an item`)
    return parts.map((part, at) => {
      const { member, part: place } = channelNamed(part)
      const settled = { ...stated[at], type: place?.type ?? '', [member]: part.text }
      return part.annotations.length === 0 && settled.annotations === undefined
        ? settled
        : { ...settled, annotations: [...part.annotations] }
    })
  }

  private endWhole(channel: string, stated: Json | undefined): string {
    const { member } = CHANNELS.get(channel) as TextChannel
    const early = memberOf(objectIn(this.start, 'item'), member) ?? ''
    const end = isEmpty(stated) && this.whole === null ? early : (stated ?? '')
    if (this.whole === null && isEmpty(end)) return ''
    this.whole ??= { channel, text: '', isDone: false }
    this.finishText(this.whole, end)
    this.closeText(this.whole)
    const { text } = this.whole
    if (!isEmpty(early) && early !== '{}' && !text.startsWith(String(early)))
      throw refuse('unread_member', `expected ${member} to be empty at the start of an item`)
    return text
  }

  private readPart(list: PartList, verb: string, data: JsonObject): void {
    const given = objectIn(data, 'part')
    if (verb === 'added') {
      this.beginPart(list, data, given)
      return
    }
    const part = this.partAt(list, data)
    if (part === null) throw refuse('late_event', 'expected an event of the part that is open')
    if (this.terms.mayHold && !part.isClosed) {
      this.checkPart(part, given)
      this.finishText(part, memberOf(given, channelNamed(part).member))
      this.closeText(part)
      part.end = data
    } else this.closePart(part, given, data)
  }

  private beginPart(list: PartList, data: JsonObject, given: JsonObject): void {
    const parts = this.parts[list]
    const channel = channelOf(this.added ?? {}, list, given)
    const { member } = CHANNELS.get(channel) as TextChannel
    const before = parts.at(-1)
    if (before !== undefined) this.closePart(before, {})
    const part: StreamedPart = {
      channel,
      text: '',
      index: parts.length,
      annotations: [],
      end: null,
      isDone: false,
      isClosed: false,
    }
    const index = memberOf(data, PART_INDEX[list]) ?? part.index
    if (index !== part.index)
      throw refuse('changed_identity', 'expected the indexes of parts to count up')
    parts.push(part)
    // Readers append deltas to this member, so the member must exist.
    const settled: Record<string, Json> = { ...given, [member]: '' }
    if (!isEmpty(memberOf(given, 'annotations'))) settled.annotations = []
    this.terms.give(`${PART_EVENT[list]}.added`, data, { ...this.placeOf(part), part: settled })
    this.finishText(part, memberOf(given, member))
    this.giveAnnotations(part, given)
  }

  private readText(channel: string, verb: string, data: JsonObject): void {
    const { items, member } = CHANNELS.get(channel) as TextChannel
    if (!items.includes(textIn(this.added ?? {}, 'type')))
      throw refuse('changed_type', 'expected a text that its item can have')
    const piece = memberOf(data, verb === 'delta' ? 'delta' : member) ?? ''
    if (typeof piece !== 'string') throw refuse('invalid_form', `expected ${verb} to be a string`)
    const name = memberOf(data, 'name') ?? null
    if (name !== null && name !== this.added?.name)
      throw refuse('changed_identity', 'expected the name of the item')
    const text = this.textOf(channel, data)
    const isRepeated = text.isDone && (piece === '' || (verb === 'done' && piece === text.text))
    if (isRepeated) return
    if (text.isDone) throw refuse('late_event', 'expected no event after the end of its text')
    if (verb === 'delta') text.text += piece
    else this.finishText(text, piece)
    if (verb === 'done') this.checkInput(text)
    text.isDone = verb === 'done'
    const end = text.isDone ? { [member]: text.text } : { delta: piece }
    this.terms.give(`${channel}.${verb}`, data, { ...end, ...this.placeOf(text) })
  }

  /** The text that an event continues. If a part has no start event, its first event begins it. */
  private textOf(channel: string, data: JsonObject): StreamedText {
    const { part, member } = CHANNELS.get(channel) as TextChannel
    if (part === null) {
      this.whole ??= { channel, text: '', isDone: false }
      return this.whole
    }
    const parts = this.parts[part.list]
    const index = memberOf(data, PART_INDEX[part.list]) ?? Math.max(0, parts.length - 1)
    if (index === parts.length) {
      const empty = { type: part.type, [member]: '' }
      const given = part.type === 'output_text' ? { ...empty, annotations: [] } : empty
      this.beginPart(part.list, {}, given)
    }
    const open = this.partAt(part.list, { [PART_INDEX[part.list]]: index })
    if (open === null) throw refuse('late_event', 'expected an event of the part that is open')
    if (open.channel !== channel || open.isClosed)
      throw refuse('changed_type', 'expected a delta of the type of its part')
    return open
  }

  private readAnnotation(data: JsonObject): void {
    const part = this.partAt('content', data)
    if (part === null) throw refuse('late_event', 'expected an event of the part that is open')
    if (part.channel !== 'response.output_text' || part.isClosed)
      throw refuse('changed_type', 'expected an annotation of a text that is open')
    const { annotations } = part
    const annotation = objectIn(data, 'annotation')
    const index = memberOf(data, 'annotation_index') ?? annotations.length
    const known = annotations[Number(index)]
    if (known !== undefined && isSame(known, annotation)) return
    if (index !== annotations.length)
      throw refuse('changed_identity', 'expected the indexes of annotations to count up')
    annotations.push(annotation)
    const place = { ...this.placeOf(part), annotation_index: index }
    this.terms.give(ANNOTATION_ADDED, data, place)
  }

  /** The part that an event names, if it is the newest. */
  private partAt(list: PartList, data: JsonObject): StreamedPart | null {
    const parts = this.parts[list]
    const index = memberOf(data, PART_INDEX[list]) ?? parts.length - 1
    return (index === parts.length - 1 ? parts.at(-1) : null) ?? null
  }

  /**
   * Gives the events that end a part, with what `stated`, the part at its end, adds. `sent`: the
   * data of the provider's event, if it is given now.
   */
  private closePart(part: StreamedPart, stated: JsonObject, sent = part.end): void {
    const { member, part: place } = channelNamed(part)
    this.checkPart(part, stated)
    this.finishText(part, memberOf(stated, member))
    if (part.isClosed) return
    this.giveAnnotations(part, sent === null ? {} : objectIn(sent, 'part'))
    this.giveAnnotations(part, stated)
    this.closeText(part)
    part.isClosed = true
    const { list, type } = place ?? { list: 'content', type: '' }
    const given = sent === null ? {} : objectIn(sent, 'part')
    const text = { ...given, type, [member]: part.text }
    const settled = type === 'output_text' ? { ...text, annotations: [...part.annotations] } : text
    this.terms.give(`${PART_EVENT[list]}.done`, sent ?? {}, {
      ...this.placeOf(part),
      part: settled,
    })
  }

  /** Throws FormatError `changed_text` if the annotations differ from those that streamed. */
  private checkPart(part: StreamedPart, stated: JsonObject): void {
    const { channel, annotations, isClosed } = part
    if ((memberOf(stated, 'type') ?? null) !== null)
      if (
        channelOf(this.added ?? {}, channelNamed(part).part?.list ?? 'content', stated) !== channel
      )
        throw refuse('changed_text', 'expected a part as it streamed')
    const given = annotationsOf(stated, channel)
    const known = isClosed ? given : given.slice(0, annotations.length)
    if (given.length > 0 && !isSame(known, annotations))
      throw refuse('changed_text', 'expected the annotations that streamed')
  }

  /** Gives an event for each annotation that was not streamed. */
  private giveAnnotations(part: StreamedPart, stated: JsonObject): void {
    const missing = annotationsOf(stated, part.channel).slice(part.annotations.length)
    if (missing.length > WRITTEN_OUT_MAX)
      throw refuse('invalid_form', `expected at most ${WRITTEN_OUT_MAX} annotations at once`)
    for (const annotation of missing) {
      const place = { ...this.placeOf(part), annotation_index: part.annotations.length }
      part.annotations.push(annotation)
      this.terms.give(ANNOTATION_ADDED, { annotation }, place)
    }
  }

  /** Gives the rest of a text that did not stream. An end without a text leaves it out. */
  private finishText(text: StreamedText, stated: Json | undefined): void {
    if (isEmpty(stated)) return
    if (typeof stated !== 'string')
      throw refuse('invalid_form', `expected ${channelNamed(text).member} to be a string`)
    const isRest = stated.startsWith(text.text) && (!text.isDone || stated === text.text)
    if (!isRest) throw refuse('changed_text', 'expected a text at its end as it streamed')
    const delta = stated.slice(text.text.length)
    if (delta === '') return
    text.text = stated
    this.terms.give(`${text.channel}.delta`, { delta }, this.placeOf(text))
  }

  private closeText(text: StreamedText): void {
    if (text.isDone) return
    this.checkInput(text)
    text.isDone = true
    const { member } = channelNamed(text)
    this.terms.give(`${text.channel}.done`, { [member]: text.text }, this.placeOf(text))
  }

  private checkInput({ channel, text }: StreamedText): void {
    if (channel === 'response.function_call_arguments') this.isCut = readToolInput(text) === 'cut'
  }

  private placeOf(text: StreamedText | null): JsonObject {
    const place = { output_index: this.index, item_id: this.id }
    const list = text === null ? undefined : channelNamed(text).part?.list
    if (list === undefined) return place
    return { ...place, [PART_INDEX[list]]: (text as StreamedPart).index }
  }
}

/** The id of an item. llama.cpp sends only `call_id`, and uses it as the item's id. */
export function idOfItem(item: JsonObject): string | null {
  return textOrNull(memberOf(item, 'id')) ?? textOrNull(memberOf(item, 'call_id'))
}

function textOrNull(value: Json | undefined): string | null {
  return typeof value === 'string' && value !== '' ? value : null
}

/** The start, with the end's value for each member that the end corrects, or the start lacks. */
function corrected(start: JsonObject, end: JsonObject): JsonObject {
  const item: Record<string, Json> = { ...start }
  for (const [name, value] of Object.entries(end)) {
    const given = memberOf(start, name)
    const isLate = ['call_id', 'name'].includes(name) && isEmpty(given)
    if (isLate || (given !== undefined && name !== 'id' && !CHANGING.includes(name)))
      if (isLate || !fills(given ?? null, value)) item[name] = value
  }
  return item
}

function channelNamed({ channel }: StreamedText): TextChannel {
  return CHANNELS.get(channel) as TextChannel
}

function textOf(part: JsonObject): string {
  return String(part.text ?? part.refusal ?? '')
}

/** A part as it begins, before its text and its annotations. */
function emptied(part: JsonObject): JsonObject {
  const { logprobs: _, ...given } = part
  const empty = { ...given, [Object.hasOwn(part, 'refusal') ? 'refusal' : 'text']: '' }
  return Object.hasOwn(part, 'annotations') ? { ...empty, annotations: [] } : empty
}

function isAbsentOr(stated: Json | undefined, known: Json | undefined): boolean {
  return isEmpty(stated) || stated === known
}

function partBefore(part: StreamedPart): JsonObject {
  const { member, part: place } = channelNamed(part)
  const streamed = { type: place?.type ?? '', [member]: part.text }
  return part.annotations.length === 0
    ? streamed
    : { ...streamed, annotations: [...part.annotations] }
}
