import { type Json, type JsonObject, memberOf } from '../../json/value.ts'
import { isEmpty, isSame, listIn, objectIn, refuse } from '../dialect.ts'
import { readToolInput } from '../tool-input.ts'
import {
  ANNOTATION_ADDED,
  annotationsOf,
  channelOf,
  channelsOf,
  isCall,
  PART_EVENT,
  PART_INDEX,
  PART_LISTS,
  type PartList,
  type TextChannel,
} from './item.ts'

/** Maximum number of annotations, and of parts, that only one event has: each becomes events. */
const WRITTEN_OUT_MAX = 1_000

export type Output = {
  /** Gives an event to the callers: the provider's data with the members of `settled`. */
  give(type: string, data: JsonObject, settled: JsonObject): void
  /** False for a stream that an enclave gave out: its events come when they are complete. */
  readonly mayHold: boolean
}

/** An item at its start, as the provider sent it and as callers got it. `place`: in all events. */
type Begun = {
  readonly sent: JsonObject
  readonly added: JsonObject
  readonly place: JsonObject
  readonly output: Output
}

/** A part of an item, or the streamed member of an item. Changed in place. */
type StreamedText = {
  readonly channel: TextChannel
  /** Its place in the list of parts, and the provider's index: vLLM counts over all items. */
  readonly index: number
  readonly place: number
  text: string
  readonly annotations: Json[]
  /** True if the callers got the `done` event of this text. */
  isDone: boolean
  /** The provider's event that ends the part, held because the item's end may have annotations. */
  end: JsonObject | null
  /** True if the callers got the event that ends the part. */
  isClosed: boolean
}

/** The texts of one item, which are added to while their events are read. */
export class ItemTexts {
  /** True if the input of a tool was cut. */
  isCut = false
  private readonly parts: Record<PartList, StreamedText[]> = { content: [], summary: [] }
  /** The streamed member of the item. Null before its first event. */
  private whole: StreamedText | null = null
  private readonly item: Begun

  constructor(item: Begun) {
    this.item = item
  }

  /** The members of the item that have texts, as far as they were given out. */
  members(): JsonObject {
    const members: Record<string, Json> = {}
    for (const list of PART_LISTS)
      if (this.parts[list].length > 0) members[list] = this.parts[list].map((part) => partOf(part))
    if (this.whole !== null) members[this.whole.channel.member] = this.whole.text
    return members
  }

  /** Ends all texts by the item at its end. Returns the members that have them. */
  end(item: JsonObject): JsonObject {
    const members: Record<string, Json> = {}
    for (const channel of channelsOf(this.item.added)) {
      const { list, member } = channel
      if (list === null) {
        const text = this.endWhole(channel, memberOf(item, member))
        // Readers accept an item without code. A call has a text.
        if (text !== '' || isCall(this.item.added)) members[member] = text
      } else if (!Object.hasOwn(members, list)) {
        const parts = this.endParts(list, item)
        if (parts.length > 0) members[list] = parts
      }
    }
    return members
  }

  /** The parts at the end of the item. Those that did not stream are written out. */
  private endParts(list: PartList, item: JsonObject): readonly JsonObject[] {
    const parts = this.parts[list]
    const early = listIn(this.item.sent, list)
    const stated = listIn(item, list).length === 0 ? early : listIn(item, list)
    if (stated.length > 0 && stated.length < parts.length)
      throw refuse('changed_text', `expected the parts of ${list} that streamed`)
    if (stated.length > parts.length + WRITTEN_OUT_MAX)
      throw refuse('invalid_form', `expected at most ${WRITTEN_OUT_MAX} parts at once`)
    for (const [at, part] of stated.entries())
      this.close(parts[at] ?? this.beginPart(list, emptied(part), {}), part)
    this.closeLast(list)
    for (const [at, part] of early.entries())
      if (!parts[at]?.text.startsWith(String(part.text ?? part.refusal ?? '')))
        throw refuse('unread_member', `expected ${list} to be empty at the start of an item`)
    return parts.map((part, at) => partOf(part, stated[at]))
  }

  private endWhole(channel: TextChannel, stated: Json | undefined): string {
    const { member } = channel
    const early = memberOf(this.item.sent, member) ?? ''
    const end = isEmpty(stated) && this.whole === null ? early : stated
    if (this.whole === null && isEmpty(end)) return ''
    this.whole ??= textAt(channel, 0)
    this.finish(this.whole, end)
    this.endText(this.whole)
    const { text } = this.whole
    if (!isEmpty(early) && early !== '{}' && !text.startsWith(String(early)))
      throw refuse('unread_member', `expected ${member} to be empty at the start of an item`)
    return text
  }

  readPart(list: PartList, verb: string, data: JsonObject): void {
    const stated = objectIn(data, 'part')
    if (verb === 'added') {
      this.beginPart(list, stated, data, data)
      return
    }
    if (this.isOfNext(list, data)) this.beginPart(list, emptied(stated), data)
    const part = this.openPart(list, data)
    part.end = data
    if (this.item.output.mayHold) {
      this.match(part, stated)
      this.endText(part)
    } else this.close(part, stated)
  }

  /** `first`: the first event with its index. `data`: its start, if the provider sent one. */
  private beginPart(list: PartList, stated: JsonObject, first: JsonObject, data: JsonObject = {}) {
    const parts = this.parts[list]
    const channel = channelOf(this.item.added, list, stated)
    const { member } = channel
    this.closeLast(list)
    const next = (parts.at(-1)?.place ?? -1) + 1
    const place = memberOf(first, PART_INDEX[list]) ?? next
    const part = textAt(channel, parts.length, Number(place))
    if (typeof place !== 'number' || place < next)
      throw refuse('changed_identity', 'expected the indexes of parts to count up')
    parts.push(part)
    // Readers append deltas to this member, so the member must exist.
    const settled: Record<string, Json> = { ...stated, [member]: '' }
    if (!isEmpty(memberOf(stated, 'annotations'))) settled.annotations = []
    this.give(part, `${PART_EVENT[list]}.added`, data, { part: settled })
    this.finish(part, memberOf(stated, member))
    this.giveAnnotations(part, stated)
    return part
  }

  readText(channel: TextChannel, verb: string, data: JsonObject): void {
    const { name, item, member } = channel
    if (item !== this.item.added.type)
      throw refuse('changed_type', 'expected a text that its item can have')
    const piece = memberOf(data, verb === 'delta' ? 'delta' : member) ?? ''
    if (typeof piece !== 'string') throw refuse('invalid_form', `expected ${verb} to be a string`)
    if (![null, this.item.added.name].includes(memberOf(data, 'name') ?? null))
      throw refuse('changed_identity', 'expected the name of the item')
    const text = this.textOf(channel, data)
    if (text.isDone) {
      if (piece === '' || (verb === 'done' && piece === text.text)) return
      throw refuse('late_event', 'expected no event after the end of its text')
    }
    if (verb === 'delta') {
      text.text += piece
      this.give(text, `${name}.delta`, data, { delta: piece })
    } else {
      this.finish(text, piece)
      this.endText(text, data)
    }
  }

  /** The text that an event continues. If a part has no start event, its first event begins it. */
  private textOf(channel: TextChannel, data: JsonObject): StreamedText {
    const { list, type, member } = channel
    if (list === null) {
      this.whole ??= textAt(channel, 0)
      return this.whole
    }
    if (this.isOfNext(list, data)) {
      const empty = { type, [member]: '' }
      this.beginPart(list, type === 'output_text' ? { ...empty, annotations: [] } : empty, data)
    }
    const part = this.openPart(list, data)
    if (part.channel !== channel || part.isClosed)
      throw refuse('changed_type', 'expected a delta of the type of its part')
    return part
  }

  readAnnotation(data: JsonObject): void {
    if (this.isOfNext('content', data))
      this.beginPart('content', { type: 'output_text', text: '', annotations: [] }, data)
    const part = this.openPart('content', data)
    if (part.channel.type !== 'output_text' || part.isClosed)
      throw refuse('changed_type', 'expected an annotation of a text that is open')
    const { annotations } = part
    const annotation = objectIn(data, 'annotation')
    const known = annotations[Number(memberOf(data, 'annotation_index') ?? annotations.length)]
    if (known !== undefined && isSame(known, annotation)) return
    if (known !== undefined)
      throw refuse('changed_identity', 'expected the indexes of annotations to count up')
    this.give(part, ANNOTATION_ADDED, data, { annotation_index: annotations.push(annotation) - 1 })
  }

  /** True for an event of a part whose start the provider left out. */
  private isOfNext(list: PartList, data: JsonObject): boolean {
    const last = this.parts[list].at(-1)
    return last === undefined || memberOf(data, PART_INDEX[list]) === last.place + 1
  }

  /** The newest part. Throws FormatError `late_event` if the event names another. */
  private openPart(list: PartList, data: JsonObject): StreamedText {
    const part = this.parts[list].at(-1)
    if (part !== undefined && (memberOf(data, PART_INDEX[list]) ?? part.place) === part.place)
      return part
    throw refuse('late_event', 'expected an event of the part that is open')
  }

  private closeLast(list: PartList): void {
    const last = this.parts[list].at(-1)
    if (last !== undefined) this.close(last, {})
  }

  /** Gives the events that end a part, with what `stated`, the part at its end, adds. */
  private close(part: StreamedText, stated: JsonObject): void {
    this.match(part, stated)
    if (part.isClosed) return
    const { end } = part
    const sent = end === null ? {} : objectIn(end, 'part')
    this.giveAnnotations(part, sent)
    this.giveAnnotations(part, stated)
    this.endText(part)
    part.isClosed = true
    const { list, type, member } = part.channel
    const text = { ...sent, type, [member]: part.text }
    const settled = type === 'output_text' ? { ...text, annotations: [...part.annotations] } : text
    this.give(part, `${PART_EVENT[list ?? 'content']}.done`, end ?? {}, { part: settled })
  }

  /**
   * Gives the rest of the text that a part has at its end. Throws FormatError `changed_text` if its
   * text, its type or its annotations differ from those that streamed.
   */
  private match(part: StreamedText, stated: JsonObject): void {
    const { channel, annotations, isClosed } = part
    const type = memberOf(stated, 'type') ?? null
    if (type !== null && channelOf(this.item.added, channel.list, stated) !== channel)
      throw refuse('changed_text', 'expected a part as it streamed')
    const given = annotationsOf(stated, channel)
    const known = isClosed ? given : given.slice(0, annotations.length)
    if (given.length > 0 && !isSame(known, annotations))
      throw refuse('changed_text', 'expected the annotations that streamed')
    this.finish(part, memberOf(stated, channel.member))
  }

  /** Gives an event for each annotation that was not streamed. */
  private giveAnnotations(part: StreamedText, stated: JsonObject): void {
    const missing = annotationsOf(stated, part.channel).slice(part.annotations.length)
    if (missing.length > WRITTEN_OUT_MAX)
      throw refuse('invalid_form', `expected at most ${WRITTEN_OUT_MAX} annotations at once`)
    for (const annotation of missing) {
      const annotation_index = part.annotations.push(annotation) - 1
      this.give(part, ANNOTATION_ADDED, { annotation }, { annotation_index })
    }
  }

  /** Gives the rest of a text that did not stream. An end without a text leaves it out. */
  private finish(text: StreamedText, stated: Json | undefined): void {
    if (isEmpty(stated)) return
    if (typeof stated !== 'string')
      throw refuse('invalid_form', `expected ${text.channel.member} to be a string`)
    if (!stated.startsWith(text.text) || (text.isDone && stated !== text.text))
      throw refuse('changed_text', 'expected a text at its end as it streamed')
    const delta = stated.slice(text.text.length)
    if (delta === '') return
    text.text = stated
    this.give(text, `${text.channel.name}.delta`, { delta }, {})
  }

  /** Gives the `done` event of a text once. */
  private endText(text: StreamedText, data: JsonObject = {}): void {
    if (text.isDone) return
    const { name, member } = text.channel
    if (name === 'response.function_call_arguments') this.isCut = readToolInput(text.text) === 'cut'
    text.isDone = true
    this.give(text, `${name}.done`, data, { [member]: text.text })
  }

  private give(text: StreamedText, type: string, data: JsonObject, settled: JsonObject): void {
    const { list } = text.channel
    const index: JsonObject = list === null ? {} : { [PART_INDEX[list]]: text.index }
    this.item.output.give(type, data, { ...settled, ...this.item.place, ...index })
  }
}

function textAt(channel: TextChannel, index: number, place = index): StreamedText {
  const annotations: Json[] = []
  return { channel, index, place, text: '', annotations, isDone: false, end: null, isClosed: false }
}

/** A part with its text so far. `stated`: its other members. */
function partOf({ channel, text, annotations }: StreamedText, stated: JsonObject = {}): JsonObject {
  const part = { ...stated, type: channel.type, [channel.member]: text }
  return annotations.length === 0 && part.annotations === undefined
    ? part
    : { ...part, annotations: [...annotations] }
}

/** A part as it begins, before its text and its annotations. */
function emptied({ logprobs: _, ...part }: JsonObject): JsonObject {
  const empty = { ...part, [Object.hasOwn(part, 'refusal') ? 'refusal' : 'text']: '' }
  return Object.hasOwn(part, 'annotations') ? { ...empty, annotations: [] } : empty
}
