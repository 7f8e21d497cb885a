import {
  isJsonObject,
  type Json,
  type JsonObject,
  memberAt,
  memberOf,
  setMember,
} from '../../json/value.ts'
import { withoutPrototypes } from '../../json/without-prototypes.ts'
import {
  type DialectEvent,
  eventNameOf,
  isEmpty,
  objectIn,
  refuse,
  type StreamReader,
  textIn,
  withoutProof,
} from '../dialect.ts'
import { addDelta, blockBefore, closeBlock, type OpenBlock, openBlock } from './block.ts'

/**
 * Reads a stream of Messages: one message, its blocks in their order, its stop reason, its end
 * (README.md, Messages).
 */
export class MessagesReader implements StreamReader {
  /** The message at the start of the stream; null before. */
  private message: JsonObject | null = null
  private readonly blocks: JsonObject[] = []
  private open: OpenBlock | null = null
  /** The event with the stop reason. */
  private ending: JsonObject | null = null
  isEnded = false

  read(event: DialectEvent): readonly DialectEvent[] {
    if (this.isEnded) return []
    const type = eventNameOf(event)
    const data = withoutPrototypes(withoutProof(event.data))
    switch (type) {
      case 'message_start':
        this.start(data)
        break
      case 'content_block_start':
        this.startBlock(data)
        break
      case 'content_block_delta':
        addDelta(this.blockOf(data), objectIn(data, 'delta'))
        break
      case 'content_block_stop':
        this.blocks.push(closeBlock(this.blockOf(data)))
        this.open = null
        break
      case 'message_delta':
        this.endMessage(data)
        break
      case 'message_stop':
        if (this.ending === null)
          throw refuse('unfinished', 'expected a stop reason before the end')
        this.isEnded = true
        break
      case 'error':
        throw refuse('upstream_failure', reasonOf(data))
      default:
        return []
    }
    return [{ event: type, data }]
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

  private start(data: JsonObject): void {
    if (this.message !== null) throw refuse('changed_identity', 'expected one message')
    const message = objectIn(data, 'message')
    if (memberOf(message, 'type') !== 'message' || memberOf(message, 'role') !== 'assistant')
      throw refuse('invalid_form', 'expected a message of the assistant')
    textIn(message, 'id')
    textIn(message, 'model')
    if (!isEmpty(memberOf(message, 'content')) || !isEmpty(memberOf(message, 'stop_reason')))
      throw refuse('unread_member', 'expected the message to begin empty')
    this.message = withoutProof(message)
  }

  private startBlock(data: JsonObject): void {
    if (this.message === null) throw refuse('invalid_form', 'expected message_start first')
    if (this.ending !== null) throw refuse('late_event', 'expected no block after the stop reason')
    if (this.open !== null) throw refuse('unfinished', 'expected the block before to have ended')
    this.checkIndex(data)
    this.open = openBlock(objectIn(data, 'content_block'))
  }

  private endMessage(data: JsonObject): void {
    if (this.message === null) throw refuse('invalid_form', 'expected message_start first')
    if (this.open !== null) throw refuse('unfinished', 'expected the last block to have ended')
    if (this.ending !== null) throw refuse('changed_finish', 'expected one message_delta')
    const delta = objectIn(data, 'delta')
    textIn(delta, 'stop_reason')
    for (const name of FIXED)
      if (Object.hasOwn(delta, name) || (name !== 'type' && Object.hasOwn(data, name)))
        throw refuse('unread_member', `expected no ${name} in message_delta`)
    mergeUsage(this.message, memberOf(data, 'usage'))
    this.ending = data
  }

  private blockOf(data: JsonObject): OpenBlock {
    this.checkIndex(data)
    if (this.open !== null) return this.open
    throw refuse('late_event', 'expected an event of a block that is open')
  }

  /** Checks that the indexes of blocks count up: readers keep blocks by their index. */
  private checkIndex(data: JsonObject): void {
    if (memberOf(data, 'index') !== this.blocks.length)
      throw refuse('changed_identity', 'expected the indexes of blocks to count up')
  }
}

/** The provider's message about an error, for the caller. */
function reasonOf(data: JsonObject): string {
  const message = memberAt(data, 'error', 'message')
  return typeof message === 'string' ? message : 'no reason given'
}

/** Members that message_delta must not have: the start and the blocks of a message set them. */
const FIXED = ['id', 'type', 'role', 'model', 'content', 'message']

/**
 * The usage of the start, merged with the usage of the end. Throws FormatError `changed_finish`
 * when a number falls: usage is cumulative, and some readers take the first number, some the last.
 */
function mergeUsage(message: JsonObject, given: Json | undefined): JsonObject {
  const first = memberOf(message, 'usage')
  const usage: Record<string, Json> = isJsonObject(first) ? { ...first } : {}
  for (const [name, value] of Object.entries(isJsonObject(given) ? given : {})) {
    if (value === null) continue
    const before = memberOf(usage, name)
    if (typeof before === 'number' && (typeof value !== 'number' || value < before))
      throw refuse('changed_finish', `expected ${name} of usage not to fall`)
    setMember(usage, name, value)
  }
  return usage
}
