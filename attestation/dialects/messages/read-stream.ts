import {
  filterMembers,
  isJsonObject,
  type Json,
  type JsonObject,
  memberOf,
  setMember,
} from '../../json/value.ts'
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
import type { OnToolInput } from '../tool-input.ts'
import {
  addDelta,
  blockBefore,
  closeBlock,
  earlyInput,
  isBlankInput,
  type OpenBlock,
  openBlock,
} from './block.ts'

/**
 * Reads a stream of the Messages API: one message, its blocks in order, its stop reason, its end
 * (formats.md, Streams).
 */
export class MessagesReader implements StreamReader {
  /** Null before the start. */
  private message: JsonObject | null = null
  private readonly blocks: JsonObject[] = []
  private open: OpenBlock | null = null
  /** Positions of the blocks, by the provider's index. */
  private readonly places = new Map<Json, number>()
  /** The signature of the open block, held until its end, since thinking may follow. */
  private signature: JsonObject | null = null
  /** The message_delta events so far, merged. They are held until the message ends. */
  private held: Ending | null = null
  /** The message_delta that callers got. Null before this event. */
  private ending: JsonObject | null = null
  private endings = 0
  private readonly ids = new Set<string>()
  given: DialectEvent[] = []
  /** True if the input of the last block's tool was cut. */
  private isCut = false
  private readonly onInput: OnToolInput
  private readonly mayHold: boolean
  isEnded = false

  /** `mayHold`: false for a stream that an enclave gave out. */
  constructor(onInput: OnToolInput = () => undefined, mayHold = true) {
    this.onInput = onInput
    this.mayHold = mayHold
  }

  get waiting(): unknown {
    return [this.held, this.open?.sent, this.signature]
  }

  isLast(type: string): boolean {
    return type === 'message_stop'
  }

  read(event: DialectEvent): readonly DialectEvent[] {
    this.given = []
    if (this.isEnded) return this.given
    const type = eventNameOf(event)
    const names = MEMBERS.get(type)
    const data = withoutPrototypes(withoutProof(event.data))
    this.readData(type, names === undefined ? data : { type, ...pick(data, names) })
    return this.given
  }

  response(): JsonObject {
    const content = this.open === null ? this.blocks : [...this.blocks, blockBefore(this.open)]
    const message: Record<string, Json> = { ...this.message, content: [...content] }
    if (this.ending === null) return message
    const { delta, usage, ...others } = this.ending
    for (const [name, value] of [...Object.entries(others), ...Object.entries(delta ?? {})])
      setMember(message, name, value)
    message.usage = mergeUsage(memberOf(message, 'usage'), usage)
    return message
  }

  private readData(type: string, data: JsonObject): void {
    if (type === 'message_start') this.start(data)
    else if (type === 'content_block_start') this.startBlock(data)
    else if (type === 'content_block_delta') this.continueBlock(data)
    else if (type === 'content_block_stop') this.stopBlock(data)
    else if (type === 'message_delta') this.endMessage(data)
    else if (type === 'message_stop') this.stop(data)
    else if (type === 'error') throw refuse('upstream_failure', failureOf(data))
  }

  private start(data: JsonObject): void {
    const message = readBeginning(objectIn(data, 'message'))
    const { usage } = message
    if (this.message !== null) {
      const isAgain = ['id', 'model'].every((name) => message[name] === this.message?.[name])
      if (!isAgain || !isEmpty(memberOf(message, 'content')))
        throw refuse('changed_identity', 'expected one message')
      this.endMessage({ delta: {}, usage })
      return
    }
    const content = listIn(message, 'content')
    const isWhole = content.length > 0 || !isEmpty(memberOf(message, 'stop_reason'))
    this.message = { ...message, content: [], ...(isWhole ? begunAs(message) : {}) }
    this.give('message_start', { message: this.message })
    if (!isWhole) return
    // A message that begins with content is whole: its events are written out.
    for (const [index, content_block] of content.entries()) {
      this.startBlock({ index, content_block })
      this.stopBlock({ index })
    }
    this.endMessage({ delta: message, usage })
  }

  private startBlock(data: JsonObject): void {
    const { open } = this
    const place = this.blocks.length + (open === null ? 0 : 1)
    const index = memberOf(data, 'index') ?? place
    const sent = objectIn(data, 'content_block')
    if (this.message === null) throw refuse('invalid_form', 'expected message_start first')
    if (open !== null && this.places.get(index) === place - 1 && isSame(sent, open.sent)) return
    if (this.ending !== null) throw refuse('late_event', 'expected no block after the stop reason')
    if (this.places.has(index))
      throw refuse('changed_identity', 'expected the indexes of blocks to count up')
    this.endEarly()
    if (this.isCut) throw refuseCut()
    this.places.set(index, place)
    const { block, early } = openBlock(sent, this.ids)
    this.open = block
    this.give('content_block_start', { index: place, content_block: block.start })
    for (const delta of early) this.add(block, delta)
  }

  private continueBlock(data: JsonObject): void {
    const delta = objectIn(data, 'delta')
    const index = memberOf(data, 'index') ?? null
    // llama.cpp ends thinking with an empty signature, sometimes after the end of its block.
    if (delta.type === 'signature_delta' && delta.signature === '') return
    const type = BEGUN_BY.get(String(delta.type))
    if (index !== null && !this.places.has(index) && type !== undefined)
      this.startBlock({ index, content_block: { type } })
    this.add(this.openAt(index), delta)
  }

  /** Adds a delta to the open block. */
  private add(open: OpenBlock, delta: JsonObject): void {
    if (isBlankInput(open, delta)) return
    if (delta.type === 'signature_delta' && this.mayHold) {
      if (this.signature !== null && !isSame(delta, this.signature))
        throw refuse('late_event', 'expected one signature of thinking')
      this.signature = delta
    } else this.giveDelta(open, delta)
  }

  private giveDelta(open: OpenBlock, delta: JsonObject): void {
    addDelta(open, delta)
    this.give('content_block_delta', { index: this.blocks.length, delta })
  }

  private stopBlock(data: JsonObject): void {
    const index = memberOf(data, 'index') ?? null
    const place = this.places.get(index) ?? this.blocks.length
    // llama.cpp sends all ends at the end. Others repeat one.
    if (place < this.blocks.length && this.mayHold) return
    this.close(this.openAt(index))
  }

  /**
   * Holds each message_delta until the end, since some readers add up the usage of several. A
   * stream that an enclave gave out has one.
   */
  private endMessage(data: JsonObject): void {
    if (this.message === null) throw refuse('invalid_form', 'expected message_start first')
    const { stop_reason = null } = isJsonObject(data.delta) ? data.delta : {}
    if (stop_reason !== null && typeof stop_reason !== 'string')
      throw refuse('invalid_form', 'expected stop_reason to be a string')
    this.endings += 1
    this.held = settleEnding(this.message, this.held, data)
    if (this.endings > 1 || stop_reason === null) checkSize(this.held, this.endings)
    if (this.mayHold) return
    if (this.ending !== null)
      throw refuse('changed_finish', 'expected no other end after the stop reason')
    this.giveEnding()
  }

  private giveEnding(): void {
    const reason = this.held?.delta.stop_reason
    if (this.held === null || typeof reason !== 'string')
      throw refuse('unfinished', 'expected a stop reason before the end')
    this.endEarly()
    if (this.isCut && !CUTTING.includes(reason)) throw refuseCut()
    this.ending = this.held
    this.give('message_delta', this.held)
  }

  private stop(data: JsonObject): void {
    if (this.ending === null) this.giveEnding()
    this.isEnded = true
    this.give('message_stop', data)
  }

  /** Ends the open block when the next one begins: llama.cpp sends all stop events at the end. */
  private endEarly(): void {
    if (this.open === null) return
    this.close(this.open)
  }

  private close(open: OpenBlock): void {
    const input = earlyInput(open)
    if (input !== null) this.add(open, input)
    if (this.signature !== null) this.giveDelta(open, this.signature)
    this.signature = null
    const { block, isCut } = closeBlock(open, this.onInput)
    this.give('content_block_stop', { index: this.blocks.length })
    this.isCut = isCut
    this.blocks.push(block)
    this.open = null
  }

  private give(type: string, data: JsonObject): void {
    this.given.push({ event: type, data: { ...data, type } })
  }

  /** The open block. Throws FormatError `late_event` if the index is that of another block. */
  private openAt(index: Json): OpenBlock {
    const isOpen = index === null || this.places.get(index) === this.blocks.length
    if (this.open !== null && isOpen) return this.open
    throw refuse('late_event', 'expected an event of a block that is open')
  }
}

/**
 * Reads a whole message from a provider (attacker-controlled) as a stream whose start has the whole
 * content. Throws FormatError.
 */
export function readWholeMessage(message: JsonObject): JsonObject {
  textIn(message, 'stop_reason')
  if ((memberOf(message, 'content') ?? null) === null)
    throw refuse('invalid_form', 'expected the content of the message')
  const reader = new MessagesReader()
  for (const data of eventsOfMessage(message)) reader.read({ event: '', data })
  return reader.response()
}

/** The shortest stream of a message, from which a reader writes out all its events. */
export function eventsOfMessage(message: JsonObject): readonly JsonObject[] {
  return [{ type: 'message_start', message }, { type: 'message_stop' }]
}

/** The data of a message_delta. */
type Ending = JsonObject & { readonly delta: JsonObject; readonly usage: JsonObject }

type Beginning = JsonObject & { readonly usage: JsonObject }

/** The members that a message begins with. vLLM leaves out `type` and `role`. */
function readBeginning(given: JsonObject): Beginning {
  const message: JsonObject = { type: 'message', role: 'assistant', ...withoutProof(given) }
  if (message.type !== 'message' || message.role !== 'assistant')
    throw refuse('invalid_form', 'expected a message of the assistant')
  for (const name of ['id', 'model']) textIn(message, name)
  return { ...message, usage: objectIn(message, 'usage') }
}

/** What only the end of a whole message states, as it is at the start. */
function begunAs(message: Beginning): Beginning {
  const cleared = DELTA_MEMBERS.filter((name) => Object.hasOwn(message, name))
  const usage = { ...message.usage, output_tokens: 0 }
  return { ...Object.fromEntries(cleared.map((name) => [name, null])), usage }
}

function refuseCut() {
  return refuse('invalid_tool_input', 'expected the input of a tool to be a JSON object')
}

/** Stop reasons with which the input of the last tool may be cut. */
const CUTTING = ['max_tokens', 'model_context_window_exceeded', 'refusal']

/** Types of blocks that a delta alone identifies. */
const BEGUN_BY = new Map([
  ['text_delta', 'text'],
  ['thinking_delta', 'thinking'],
])

/** Members beside `type`. Others are left out, so that no event has two meanings. */
const MEMBERS: ReadonlyMap<string, readonly string[]> = new Map([
  ['message_start', ['message']],
  ['content_block_start', ['index', 'content_block']],
  ['content_block_delta', ['index', 'delta']],
  ['content_block_stop', ['index']],
  ['message_stop', []],
])

/** Members that SDKs read in message_delta and its delta. All others are left out. */
const TOP_MEMBERS = ['context_management', 'input_transformations']
const DELTA_MEMBERS = ['stop_reason', 'stop_sequence', 'stop_details', 'container']

function pick(object: JsonObject, names: readonly string[]): JsonObject {
  return filterMembers(object, (name) => names.includes(name))
}

const ENDINGS_MAX = 100
const USAGE_MEMBERS_MAX = 1_000

/** Limits the time for a stream, because each message_delta merges the whole usage again. */
function checkSize({ usage }: { readonly usage: JsonObject }, endings: number): void {
  const expected = `${ENDINGS_MAX} message_delta events with ${USAGE_MEMBERS_MAX} members of usage`
  if (endings > ENDINGS_MAX || Object.keys(usage).length > USAGE_MEMBERS_MAX)
    throw refuse('invalid_form', `expected at most ${expected}`)
}

/**
 * Merges a message_delta into `earlier`, the message_delta events before it. Throws FormatError
 * `changed_finish` for another stop reason, or if `output_tokens` are fewer than at the start.
 */
function settleEnding(message: JsonObject, earlier: Ending | null, data: JsonObject): Ending {
  const { delta: before = {}, usage, ...others } = earlier ?? {}
  const { stop_reason, ...stated } = pick(isJsonObject(data.delta) ? data.delta : {}, DELTA_MEMBERS)
  const known = memberOf(before, 'stop_reason') ?? null
  const reason = stop_reason ?? known
  if (known !== null && reason !== known)
    throw refuse('changed_finish', 'expected no other end after the stop reason')
  const given = isJsonObject(data.usage) ? data.usage : {}
  const merged = { ...given, ...(earlier === null ? {} : mergeUsage(usage, given)) }
  const start = memberOf(message, 'usage')
  const { output_tokens: output = 0 } = mergeUsage(start, merged)
  if (Number(output) < Number((isJsonObject(start) && start.output_tokens) || 0))
    throw refuse('changed_finish', 'expected output_tokens of usage not to fall')
  return {
    ...others,
    ...pick(data, TOP_MEMBERS),
    delta: { stop_sequence: null, ...before, ...stated, stop_reason: reason },
    usage: { ...merged, output_tokens: output },
  }
}

/**
 * Merges `given` into `before`, the usage so far: later numbers replace earlier numbers. Throws
 * FormatError `changed_finish` if a number becomes another type.
 */
function mergeUsage(before: Json | undefined, given: Json | undefined): JsonObject {
  const usage: Record<string, Json> = isJsonObject(before) ? { ...before } : {}
  for (const [name, value] of Object.entries(isJsonObject(given) ? given : {})) {
    if (value === null) continue
    if (typeof memberOf(usage, name) === 'number' && typeof value !== 'number')
      throw refuse('changed_finish', `expected ${name} of usage to be a number`)
    setMember(usage, name, value)
  }
  return usage
}
