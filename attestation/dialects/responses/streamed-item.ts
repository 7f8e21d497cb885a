import { type Json, type JsonObject, memberOf } from '../../json/value.ts'
import { isEmpty, isSame, listIn, objectIn, refuse } from '../dialect.ts'
import {
  ANNOTATION_ADDED,
  CHANGING,
  CHANNELS,
  channelsOf,
  fills,
  ITEM_ADDED,
  ITEM_DONE,
  isShownAtEnd,
  PART_LIST_OF,
  progressItem,
  settleStart,
  splitName,
} from './item.ts'
import { ItemTexts, type Output } from './item-texts.ts'

/** Characters. The id is written into each event of the item. */
const ID_LENGTH_MAX = 1_024

/** An item of one stream's output. Its events wait here until they can be given. */
export class StreamedItem {
  readonly index: number
  /** The `output_index` of the provider. */
  readonly place: Json
  readonly type: Json
  id: string | null
  /** The start as callers got it. Null while it waits. */
  added: JsonObject | null = null
  /** The final form of the item. Null before its end. */
  done: JsonObject | null = null
  waiting: JsonObject[] = []
  /** The item in the provider's first and last event. `end` is null before the last. */
  readonly start: JsonObject
  end: JsonObject | null = null
  private isEndHeld = false
  /** The members of the provider's first event. */
  private readonly sent: JsonObject
  /** Null while the start waits. */
  private texts: ItemTexts | null = null
  private readonly output: Output

  constructor(index: number, place: Json, sent: JsonObject, output: Output) {
    this.index = index
    this.place = place
    this.sent = sent
    this.start = objectIn(sent, 'item')
    this.type = memberOf(this.start, 'type') ?? null
    this.id = idOfItem(this.start)
    this.output = output
  }

  /** True if the input of a tool was cut. */
  get isCut(): boolean {
    return this.texts?.isCut ?? false
  }

  /** False while the start lacks what only a later event has. */
  get canBegin(): boolean {
    if (this.end !== null) return true
    const isLate = this.output.mayHold && isShownAtEnd(this.start)
    return this.id !== null && !isLate
  }

  /** Adds an event of this item. Call `readWaiting` to read it. */
  push(event: JsonObject): void {
    if (event.type === ITEM_DONE) this.end ??= objectIn(event, 'item')
    this.id ??= textOrNull(memberOf(event, 'item_id')) ?? (this.end && idOfItem(this.end))
    this.waiting.push(event)
  }

  /** Settles the start, which `giveStart` gives. Throws FormatError `invalid_form`. */
  begin(): void {
    this.id ??= `item_${this.index}`
    if (this.id.length > ID_LENGTH_MAX)
      throw refuse('invalid_form', `expected an id of at most ${ID_LENGTH_MAX} characters`)
    const start = { ...this.start, id: this.id }
    const added = settleStart(this.end === null ? start : corrected(start, this.end))
    const place = { output_index: this.index, item_id: this.id }
    this.added = added
    this.texts = new ItemTexts({ sent: this.start, added, place, output: this.output })
  }

  giveStart(): void {
    const { type: _, ...data } = this.sent
    this.output.give(ITEM_ADDED, data, { output_index: this.index, item: this.added ?? {} })
  }

  /** True for an end that is not this item's, which has ended otherwise. */
  isEndOfOther(item: JsonObject): boolean {
    return this.end !== null && !isSame(item, this.end)
  }

  /** Reads the events that wait, up to the end of the item unless `mayEnd`. */
  readWaiting(mayEnd: boolean): void {
    const { added, texts } = this
    if (added === null || texts === null || (this.isEndHeld && !mayEnd)) return
    const events = this.waiting
    this.waiting = []
    for (const [at, event] of events.entries()) {
      this.isEndHeld = event.type === ITEM_DONE && !mayEnd
      if (this.isEndHeld) {
        this.waiting = events.slice(at)
        return
      }
      this.read(event, added, texts)
    }
  }

  /** The item, assembled from the events that were given out. */
  before(): JsonObject {
    return this.done ?? { ...this.added, ...this.texts?.members() }
  }

  /**
   * Compares an item of the final response, which may lack texts and have other ids, with this
   * item. Throws FormatError `changed_identity`, `changed_text`.
   */
  checkFinal(final: JsonObject): void {
    const done = this.before()
    const mayBe = (name: string) =>
      isEmpty(memberOf(final, name)) || memberOf(final, name) === memberOf(done, name)
    for (const name of ['type', 'role', 'name'])
      if (!isEmpty(memberOf(done, name)) && !mayBe(name))
        throw refuse('changed_identity', `expected ${name} of an item as at its start`)
    for (const { list, member } of channelsOf(done)) {
      const stated = list === null ? [] : textsIn(final, list)
      const isKnown = stated.length === 0 || isSame(stated, textsIn(done, list ?? ''))
      if (list === null ? !mayBe(member) : !isKnown)
        throw refuse('changed_text', 'expected the final answer to have the items that streamed')
    }
  }

  private read({ type: name, ...data }: JsonObject, added: JsonObject, texts: ItemTexts): void {
    const type = String(name)
    const [kind, verb] = splitName(type)
    const [list, channel] = [PART_LIST_OF.get(kind), CHANNELS.get(kind)]
    if (this.done !== null) this.checkRepeated(type, data)
    else if (type === ITEM_DONE) this.finish(data, added, texts)
    else if (list !== undefined) texts.readPart(list, verb, data)
    else if (channel !== undefined) texts.readText(channel, verb, data)
    else if (type === ANNOTATION_ADDED) texts.readAnnotation(data)
    else if (progressItem(type) === added.type)
      this.output.give(type, data, { output_index: this.index, item_id: this.id })
    else throw refuse('changed_type', 'expected an event of the type of its item')
  }

  /** Leaves out an end that only repeats. */
  private checkRepeated(type: string, data: JsonObject): void {
    if (type !== ITEM_DONE || !isSame({ ...objectIn(data, 'item'), id: this.id }, this.done))
      throw refuse('late_event', 'expected no event after the end of its item')
  }

  private finish(data: JsonObject, added: JsonObject, texts: ItemTexts): void {
    const given = objectIn(data, 'item')
    const done: Record<string, Json> = { ...given, id: this.id }
    const streamed = channelsOf(added).map(({ list, member }) => list ?? member)
    for (const [name, value] of Object.entries(added)) {
      if ([...streamed, ...CHANGING, 'id'].includes(name)) continue
      // What the end leaves out is as at the start.
      if (isEmpty(memberOf(given, name)) && !isEmpty(value)) done[name] = value
      else if (!fills(value, memberOf(given, name)))
        throw refuse('changed_identity', `expected ${name} of an item as at its start`)
    }
    this.done = { ...done, ...texts.end(given) }
    this.output.give(ITEM_DONE, data, { output_index: this.index, item: this.done })
  }
}

/** The types and texts of the parts in a list. */
function textsIn(item: JsonObject, list: string): readonly Json[] {
  return listIn(item, list).map((part) => [part.type ?? null, part.text ?? part.refusal ?? ''])
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
