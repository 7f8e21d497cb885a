import {
  filterMembers,
  isJsonObject,
  type Json,
  type JsonObject,
  memberOf,
} from '../../json/value.ts'
import { withoutPrototypes } from '../../json/without-prototypes.ts'
import {
  addId,
  type DialectEvent,
  eventNameOf,
  failureOf,
  isEmpty,
  isSame,
  listIn,
  objectIn,
  PROOF_MEMBER,
  refuse,
  type StreamReader,
  textIn,
  withoutProof,
} from '../dialect.ts'
import { ITEM_ADDED, ITEM_DONE, isItemEvent } from './item.ts'
import type { Output } from './item-texts.ts'
import { idOfItem, StreamedItem } from './streamed-item.ts'

/** Events at the start of a response. Some providers leave out some of them. */
const BEGINNINGS = ['response.created', 'response.queued', 'response.in_progress']

/** The events that can end a stream, each with the status of its response. */
const TERMINALS: ReadonlyMap<string, string> = new Map([
  ['response.completed', 'completed'],
  ['response.incomplete', 'incomplete'],
  ['response.failed', 'failed'],
])

/** SDKs compute these members from the output. The provider's values could differ from it. */
const COMPUTED = ['output_text', 'output_parsed']

/**
 * Reads a stream of the Responses API: one response, its items by index, the parts and texts of
 * each item, and the final response (formats.md, Streams). Items begin and end in order, and two
 * messages are never open at once: events that come earlier wait.
 */
export class ResponsesReader implements StreamReader {
  /** The responses in the first and the last event. Null before these events. */
  private first: JsonObject | null = null
  private final: JsonObject | null = null
  private items: StreamedItem[] = []
  /** The newest item of each `output_index`. Some providers send one index for all. */
  private readonly byPlace = new Map<Json, StreamedItem>()
  private readonly byId = new Map<string, StreamedItem>()
  private readonly ids = new Set<string>()
  private message: StreamedItem | null = null
  /** Number of items whose start was given, and number of ended items. */
  private begun = 0
  private ended = 0
  given: DialectEvent[] = []
  private sequence = 0
  private readonly output: Output

  /** `mayHold`: false for a stream that an enclave gave out. */
  constructor(mayHold = true) {
    this.output = { give: (...event) => this.give(...event), mayHold }
  }

  get isEnded(): boolean {
    return this.final !== null
  }

  get waiting(): unknown {
    return this.items.slice(this.ended).map(({ waiting }) => waiting)
  }

  isLast(type: string): boolean {
    return TERMINALS.has(type)
  }

  read(event: DialectEvent): readonly DialectEvent[] {
    this.given = []
    if (this.isEnded) return this.given
    const type = eventNameOf(event)
    const data = withoutPrototypes(withoutProof(event.data))
    if (type === 'error') throw refuse('upstream_failure', failureOf(data))
    if (BEGINNINGS.includes(type)) this.begin(type, data)
    else if (TERMINALS.has(type)) this.end(type, data)
    else if (isItemEvent(type)) this.readItem(type, data)
    return this.given
  }

  response(): JsonObject {
    const output = this.items.slice(0, this.begun).map((item) => item.before())
    return this.final ?? { ...this.first, output }
  }

  private begin(type: string, data: JsonObject): void {
    const response = this.responseIn(data)
    if (!isEmpty(memberOf(response, 'output')) || !isEmpty(memberOf(response, 'error')))
      throw refuse('unread_member', 'expected the response to begin empty')
    if (this.first !== null && (type === 'response.created' || this.items.length > 0)) return
    const isFirst = this.first === null
    this.first = this.first === null ? response : withModel(this.first, response)
    // Readers add items to `output`, so it must be a list.
    const settled = { response: { ...response, output: [] } }
    if (isFirst && type !== 'response.created') this.give('response.created', {}, settled)
    this.give(type, data, settled)
  }

  private end(type: string, data: JsonObject): void {
    const given = this.responseIn(data)
    const status = TERMINALS.get(type) ?? ''
    if (!['', 'queued', 'in_progress', status].includes(String(memberOf(given, 'status') ?? '')))
      throw refuse('changed_finish', 'expected the status of the response to be that of its event')
    const response = { ...given, status }
    const isCut = ['error', 'incomplete_details'].some((name) => !isEmpty(memberOf(given, name)))
    // Readers show either the answer or the error.
    if (status === 'completed' && isCut)
      throw refuse('changed_finish', 'expected no error in a response that is completed')
    if (this.first === null) this.begin('response.created', { response: begunAs(response) })
    const finals = this.matchFinals(listIn(response, 'output'))
    if (type !== 'response.failed') this.endItems(finals, status)
    // What a failure cut before its start was never shown.
    this.items = this.items.slice(0, this.begun)
    for (const [item, final] of finals) if (item.done !== null) item.checkFinal(final)
    this.checkCut(status)
    const output = this.items.map((item) => item.done ?? { ...item.before(), status: 'incomplete' })
    this.final = { ...response, output }
    this.give(type, {}, { response: this.final })
  }

  /**
   * The items of the final response, by the item that streamed: by id, or the next of its type, as
   * some providers send new ids. An item that did not stream is written out.
   */
  private matchFinals(output: readonly JsonObject[]): ReadonlyMap<StreamedItem, JsonObject> {
    const found = new Map<StreamedItem, JsonObject>()
    const others = output.filter((final) => {
      const item = this.byId.get(idOfItem(final) ?? '')
      if (item === undefined) return true
      if (found.has(item))
        throw refuse('changed_text', 'expected the final answer to have the items that streamed')
      found.set(item, final)
      return false
    })
    const byType = new Map<Json, StreamedItem[]>(this.items.map(({ type }) => [type, []]))
    for (const item of this.items.toReversed())
      if (!found.has(item)) byType.get(item.type)?.push(item)
    for (const final of others) {
      const item = byType.get(memberOf(final, 'type') ?? null)?.pop()
      if (item !== undefined) found.set(item, final)
      else if (idOfItem(final) === null) this.addWhole(final)
      else this.readItem(ITEM_DONE, { item: final })
    }
    return found
  }

  /** Without an id and an index, two items with the same content are still two. */
  private addWhole(item: JsonObject): void {
    const added = this.addItem(ITEM_DONE, { item })
    added.push({ type: ITEM_DONE, item })
    this.advance(added)
  }

  /** Ends the items whose end the provider left out. */
  private endItems(finals: ReadonlyMap<StreamedItem, JsonObject>, status: string): void {
    for (const item of this.items.slice(this.ended)) {
      if (item.end !== null) continue
      const before = item.before()
      const final =
        finals.get(item) ?? (Object.hasOwn(before, 'status') ? { ...before, status } : before)
      item.push({ type: ITEM_DONE, item: final })
      this.advance(item)
    }
    if (this.ended < this.items.length)
      throw refuse('unfinished', 'expected every item to have ended')
  }

  /** Only the limit of tokens or a failure cuts the input of a tool, and then nothing follows. */
  private checkCut(status: string): void {
    const at = this.items.findIndex(({ isCut }) => isCut)
    if (at < 0) return
    const after = this.items.slice(at + 1).some(({ done }) => done?.status !== 'incomplete')
    if (status === 'completed' || after)
      throw refuse('invalid_tool_input', 'expected the input of a tool to be a JSON object')
  }

  private readItem(type: string, { type: _, ...data }: JsonObject): void {
    if (this.first === null) throw refuse('invalid_form', 'expected response.created first')
    const known = this.find(type, data)
    if (type === ITEM_ADDED && known !== undefined) {
      if (isSame(objectIn(data, 'item'), known.start)) return
      throw refuse('changed_identity', 'expected no id twice')
    }
    const item = known ?? this.addItem(type, data)
    if (type !== ITEM_ADDED) item.push({ ...data, type })
    this.advance(item)
  }

  /** The item that an event belongs to. Some providers send only its id, others only its index. */
  private find(type: string, data: JsonObject): StreamedItem | undefined {
    const index = memberOf(data, 'output_index') ?? null
    const item = memberOf(data, 'item')
    const id = isJsonObject(item) ? idOfItem(item) : (memberOf(data, 'item_id') ?? null)
    const named = typeof id === 'string' ? this.byId.get(id) : undefined
    if (type === ITEM_ADDED) return named
    // vLLM ends items at the index of the next one, which has not begun.
    if (named !== undefined && named.place !== index && this.byPlace.has(index))
      throw refuse('changed_identity', 'expected an event of an item that has begun')
    if (named !== undefined || index !== null || id !== null)
      return named ?? this.byPlace.get(index)
    const last = this.items.at(-1)
    const isNext = type === ITEM_DONE && last?.isEndOfOther(objectIn(data, 'item'))
    return isNext ? undefined : last
  }

  /** Adds an item for its start, or for its end if the provider left out the start. */
  private addItem(type: string, data: JsonObject): StreamedItem {
    if (type !== ITEM_ADDED && type !== ITEM_DONE)
      throw refuse('changed_identity', 'expected an event of an item that has begun')
    const index = this.items.length
    const place = memberOf(data, 'output_index') ?? index
    const item = new StreamedItem(index, place, data, this.output)
    this.items.push(item)
    this.byPlace.set(place, item)
    if (item.id !== null) this.byId.set(item.id, item)
    return item
  }

  /** Gives what can be given now, after `changed` got an event. */
  private advance(changed: StreamedItem): void {
    this.readWaiting(changed)
    for (;;) {
      const next = this.items[this.begun]
      if (this.items[this.ended]?.done) {
        this.ended += 1
        this.readWaiting(this.items[this.ended])
      } else if (next !== undefined && this.mayBegin(next)) {
        next.begin()
        this.name(next)
        this.begun += 1
        next.giveStart()
        if (next.type === 'message') this.message = next
        this.readWaiting(next)
      } else return
    }
  }

  private readWaiting(item: StreamedItem | undefined): void {
    if (item !== undefined && item.index < this.begun) item.readWaiting(item.index <= this.ended)
  }

  /** Readers that show texts immediately would mix the texts of two open messages. */
  private mayBegin(item: StreamedItem): boolean {
    const isAlone = item.type !== 'message' || this.message === null || this.message.done !== null
    return isAlone && item.canBegin
  }

  /** Throws FormatError `changed_identity` for an id that an earlier item has. */
  private name(item: StreamedItem): void {
    const { id, type, added } = item
    addId(this.ids, [id])
    // Includes the type, because a tool's answer has the same id as its call.
    addId(this.ids, [type, memberOf(added ?? {}, 'call_id') ?? null])
    if (id !== null) this.byId.set(id, item)
  }

  /** The id and the model must not change. llama.cpp states the model only at the end. */
  private responseIn(data: JsonObject): JsonObject {
    const sent = objectIn(data, 'response')
    textIn(sent, 'id')
    if (memberOf(sent, 'object') !== 'response')
      throw refuse('invalid_form', 'expected object to be response')
    const response = filterMembers(sent, (name) => ![PROOF_MEMBER, ...COMPUTED].includes(name))
    const { first } = this
    if (first === null) return response
    const lacksModel = isEmpty(memberOf(first, 'model'))
    for (const name of lacksModel ? ['id'] : ['id', 'model'])
      if (memberOf(first, name) !== memberOf(response, name))
        throw refuse('changed_identity', `expected the ${name} of the response as at its start`)
    return response
  }

  private give(type: string, data: JsonObject, settled: JsonObject): void {
    const sequence_number = this.sequence++
    this.given.push({ event: type, data: { ...data, ...settled, type, sequence_number } })
  }
}

/** The first response, with a model that only a later event states. */
function withModel(first: JsonObject, response: JsonObject): JsonObject {
  const isStated = !isEmpty(memberOf(first, 'model'))
  return isStated ? first : { ...first, model: memberOf(response, 'model') ?? null }
}

/** The response of a stream's first event, by that of its last. */
function begunAs(response: JsonObject): JsonObject {
  const usage: JsonObject = Object.hasOwn(response, 'usage') ? { usage: null } : {}
  const begun = { status: 'in_progress', error: null, incomplete_details: null, output: [] }
  return { ...response, ...begun, ...usage }
}

/**
 * Reads a whole response from a provider (attacker-controlled) as a stream that consists of its
 * last event alone. Throws FormatError.
 */
export function readWholeResponse(response: JsonObject): JsonObject {
  if (![...TERMINALS.values()].includes(textIn(response, 'status')))
    throw refuse('invalid_form', 'expected a response that has ended')
  const reader = new ResponsesReader()
  for (const data of eventsOfResponse(response)) reader.read({ event: '', data })
  return reader.response()
}

/** The shortest stream of a response, from which a reader writes out all its events. */
export function eventsOfResponse(response: JsonObject): readonly JsonObject[] {
  return [{ type: `response.${response.status}`, response }]
}
