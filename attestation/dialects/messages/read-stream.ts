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
  objectIn,
  refuse,
  type StreamReader,
  textIn,
  withoutProof,
} from '../dialect.ts'
import { readBeginning } from './answer.ts'
import { addDelta, blockBefore, closeBlock, type OpenBlock, openBlock } from './block.ts'

/**
 * Reads a stream of the Messages API: one message, its blocks in order, its stop reason, its end
 * (formats.md, Streams).
 */
export class MessagesReader implements StreamReader {
  /** Null before the start. */
  private message: JsonObject | null = null
  private readonly blocks: JsonObject[] = []
  private open: OpenBlock | null = null
  /** The event with the stop reason. Null before this event. */
  private ending: JsonObject | null = null
  /** Blocks that this reader ended before their stop events arrived. */
  private readonly lateStops = new Set<Json>()
  private readonly ids = new Set<string>()
  isEnded = false

  read(event: DialectEvent): readonly DialectEvent[] {
    if (this.isEnded) return []
    const type = eventNameOf(event)
    const names = MEMBERS.get(type)
    const data = withoutPrototypes(withoutProof(event.data))
    return this.readData(type, names === undefined ? data : { type, ...pick(data, names) }).map(
      (given) => ({ event: String(given.type), data: given }),
    )
  }

  response(): JsonObject {
    const content = this.open === null ? this.blocks : [...this.blocks, blockBefore(this.open)]
    const message: Record<string, Json> = { ...this.message, content: [...content] }
    if (this.ending === null) return message
    const { delta, usage, type: _, ...others } = this.ending
    for (const [name, value] of [...Object.entries(others), ...Object.entries(delta ?? {})])
      setMember(message, name, value)
    message.usage = mergeUsage(this.message ?? {}, usage)
    return message
  }

  /** Returns the data of each event that callers receive. */
  private readData(type: string, data: JsonObject): readonly JsonObject[] {
    switch (type) {
      case 'message_start':
        return [this.start(data)]
      case 'content_block_start':
        return this.startBlock(data)
      case 'content_block_delta': {
        const delta = objectIn(data, 'delta')
        // llama.cpp ends thinking with an empty signature, sometimes after the end of its block.
        if (delta.type === 'signature_delta' && delta.signature === '') return []
        addDelta(this.blockOf(data), delta)
        return [data]
      }
      case 'content_block_stop':
        if (this.lateStops.delete(memberOf(data, 'index') ?? null)) return []
        this.blockOf(data)
        this.closeOpen()
        return [data]
      case 'message_delta':
        return this.endMessage(data)
      case 'message_stop':
        if (this.ending === null)
          throw refuse('unfinished', 'expected a stop reason before the end')
        this.isEnded = true
        return [data]
      case 'error':
        throw refuse('upstream_failure', failureOf(data))
      default:
        return []
    }
  }

  private start(data: JsonObject): JsonObject {
    if (this.message !== null) throw refuse('changed_identity', 'expected one message')
    const message = readBeginning(objectIn(data, 'message'))
    for (const name of ['content', 'stop_reason', 'stop_sequence', 'stop_details'])
      if (!isEmpty(memberOf(message, name)))
        throw refuse('unread_member', `expected ${name} to be empty at the start of a message`)
    this.message = { ...message, content: [] }
    return { ...data, message: this.message }
  }

  private startBlock(data: JsonObject): readonly JsonObject[] {
    if (this.message === null) throw refuse('invalid_form', 'expected message_start first')
    if (this.ending !== null) throw refuse('late_event', 'expected no block after the stop reason')
    const open = this.open
    if (memberOf(data, 'index') !== this.blocks.length + (open === null ? 0 : 1))
      throw refuse('changed_identity', 'expected the indexes of blocks to count up')
    const next = openBlock(objectIn(data, 'content_block'), this.ids)
    const before = open === null ? [] : [this.endEarly()]
    this.open = next
    return [...before, { ...data, content_block: next.start }]
  }

  private endMessage(data: JsonObject): readonly JsonObject[] {
    if (this.message === null) throw refuse('invalid_form', 'expected message_start first')
    if (this.ending !== null) throw refuse('changed_finish', 'expected one message_delta')
    const delta = objectIn(data, 'delta')
    textIn(delta, 'stop_reason')
    const { output_tokens: output = 0 } = mergeUsage(this.message, memberOf(data, 'usage'))
    const usage = memberOf(data, 'usage')
    const settled = {
      ...pick(data, TOP_MEMBERS),
      type: 'message_delta',
      delta: { stop_sequence: null, ...pick(delta, DELTA_MEMBERS) },
      usage: { ...(isJsonObject(usage) ? usage : {}), output_tokens: output },
    }
    const before = this.open === null ? [] : [this.endEarly()]
    this.ending = settled
    return [...before, settled]
  }

  /** Ends the open block when the next one begins: llama.cpp sends all stop events at the end. */
  private endEarly(): JsonObject {
    const index = this.blocks.length
    this.closeOpen()
    this.lateStops.add(index)
    return { type: 'content_block_stop', index }
  }

  private closeOpen(): void {
    if (this.open !== null) this.blocks.push(closeBlock(this.open))
    this.open = null
  }

  /** The open block. The event must have the block's index: readers keep blocks by index. */
  private blockOf(data: JsonObject): OpenBlock {
    if (memberOf(data, 'index') !== this.blocks.length)
      throw refuse('changed_identity', 'expected the indexes of blocks to count up')
    if (this.open !== null) return this.open
    throw refuse('late_event', 'expected an event of a block that is open')
  }
}

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

/**
 * Merges `given` into the usage of the message: later numbers replace earlier numbers. Throws
 * FormatError `changed_finish` if `output_tokens` falls or has another type.
 */
function mergeUsage(message: JsonObject, given: Json | undefined): JsonObject {
  const first = memberOf(message, 'usage')
  const usage: Record<string, Json> = isJsonObject(first) ? { ...first } : {}
  for (const [name, value] of Object.entries(isJsonObject(given) ? given : {})) {
    if (value === null) continue
    const before = memberOf(usage, name)
    if (typeof before === 'number' && typeof value !== 'number')
      throw refuse('changed_finish', `expected ${name} of usage to be a number`)
    if (name === 'output_tokens' && Number(before ?? 0) > Number(value))
      throw refuse('changed_finish', 'expected output_tokens of usage not to fall')
    setMember(usage, name, value)
  }
  return usage
}
