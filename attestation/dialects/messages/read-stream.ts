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
  objectIn,
  refuse,
  type StreamReader,
  textIn,
  withoutProof,
} from '../dialect.ts'
import type { OnToolInput } from '../tool-input.ts'
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
  /** The message_delta events that came before the stop reason, merged. */
  private held: JsonObject | null = null
  /** The event with the stop reason. Null before this event. */
  private ending: JsonObject | null = null
  private endings = 0
  /** Blocks that this reader ended before their stop events arrived. */
  private readonly lateStops = new Set<Json>()
  private readonly ids = new Set<string>()
  private readonly onInput: OnToolInput
  isEnded = false

  constructor(onInput: OnToolInput = () => undefined) {
    this.onInput = onInput
  }

  isLast(type: string): boolean {
    return type === 'message_stop'
  }

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
    message.usage = mergeUsage(memberOf(message, 'usage'), usage)
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

  /**
   * Holds an event without a stop reason until the stop reason comes, since some readers add up the
   * usage of several events.
   */
  private endMessage(data: JsonObject): readonly JsonObject[] {
    if (this.message === null) throw refuse('invalid_form', 'expected message_start first')
    const delta = objectIn(data, 'delta')
    const hasReason = (memberOf(delta, 'stop_reason') ?? null) !== null
    if (hasReason) textIn(delta, 'stop_reason')
    const settled = settleEnding(this.message, this.ending ?? this.held, data)
    this.endings += 1
    if (this.endings > 1 || !hasReason) checkSize(settled, this.endings)
    if (this.ending !== null) {
      if (isSame(settled, this.ending)) return []
      throw refuse('changed_finish', 'expected no other end after the stop reason')
    }
    if (!hasReason) {
      this.held = settled
      return []
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
    if (this.open !== null) this.blocks.push(closeBlock(this.open, this.onInput))
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

const ENDINGS_MAX = 100
const USAGE_MEMBERS_MAX = 1_000

/** Limits the time for a stream, because each message_delta merges the whole usage again. */
function checkSize({ usage }: { readonly usage: JsonObject }, endings: number): void {
  if (endings > ENDINGS_MAX || Object.keys(usage).length > USAGE_MEMBERS_MAX)
    throw refuse(
      'invalid_form',
      `expected at most ${ENDINGS_MAX} message_delta events with ${USAGE_MEMBERS_MAX} members of usage`,
    )
}

/** Merges a message_delta into `earlier`, the message_delta events before it. */
function settleEnding(message: JsonObject, earlier: JsonObject | null, data: JsonObject) {
  const { delta, usage, ...others } = earlier ?? {}
  const given = memberOf(data, 'usage')
  const merged = {
    ...(isJsonObject(given) ? given : {}),
    ...(earlier === null ? {} : mergeUsage(usage, given)),
  }
  const { output_tokens: output = 0 } = mergeUsage(memberOf(message, 'usage'), merged)
  return {
    ...others,
    ...pick(data, TOP_MEMBERS),
    type: 'message_delta',
    delta: {
      stop_sequence: null,
      ...(isJsonObject(delta) ? delta : {}),
      ...pick(objectIn(data, 'delta'), DELTA_MEMBERS),
    },
    usage: { ...merged, output_tokens: output },
  }
}

/**
 * Merges `given` into `before`, the usage so far: later numbers replace earlier numbers. Throws
 * FormatError `changed_finish` if `output_tokens` falls or has another type.
 */
function mergeUsage(before: Json | undefined, given: Json | undefined): JsonObject {
  const usage: Record<string, Json> = isJsonObject(before) ? { ...before } : {}
  for (const [name, value] of Object.entries(isJsonObject(given) ? given : {})) {
    if (value === null) continue
    const known = memberOf(usage, name)
    if (typeof known === 'number' && typeof value !== 'number')
      throw refuse('changed_finish', `expected ${name} of usage to be a number`)
    if (name === 'output_tokens' && Number(known ?? 0) > Number(value))
      throw refuse('changed_finish', 'expected output_tokens of usage not to fall')
    setMember(usage, name, value)
  }
  return usage
}
