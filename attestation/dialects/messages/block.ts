import { hasMembers, isJsonObject, type Json, type JsonObject, memberOf } from '../../json/value.ts'
import { isEmpty, objectIn, refuse, textIn } from '../dialect.ts'
import { parseToolInput } from '../tool-input.ts'

/** Adds a delta of one type to the open block. */
type Add = (block: OpenBlock, delta: JsonObject) => void

/** The deltas that a block of one type may have. */
type BlockRule = {
  /** Members that must be empty at the start of the block: deltas fill them. */
  readonly filled: readonly string[]
  readonly deltas: Readonly<Record<string, Add>>
}

/** The open block of a message. Belongs to one stream; its parts are changed in place. */
export type OpenBlock = {
  readonly start: JsonObject
  readonly rule: BlockRule
  /** The joined deltas: text, thinking, or the JSON text of a tool's input. */
  text: string
  readonly citations: Json[]
  /** The signature of thinking. It comes once, after the thinking. */
  signature: string | null
  /** The text of a compaction. It comes once. */
  content: string | null
}

const ADDS = {
  text_delta: (block, delta) => {
    block.text += textIn(delta, 'text')
  },
  citations_delta: (block, delta) => {
    block.citations.push(objectIn(delta, 'citation'))
  },
  input_json_delta: (block, delta) => {
    block.text += textIn(delta, 'partial_json')
  },
  thinking_delta: (block, delta) => {
    if (block.signature !== null)
      throw refuse('late_event', 'expected no thinking after its signature')
    block.text += textIn(delta, 'thinking')
  },
  signature_delta: (block, delta) => {
    if (block.signature !== null) throw refuse('late_event', 'expected one signature of thinking')
    block.signature = textIn(delta, 'signature')
  },
  compaction_delta: (block, delta) => {
    if (block.content !== null) throw refuse('late_event', 'expected one text of a compaction')
    block.content = textIn(delta, 'content')
  },
} as const satisfies Readonly<Record<string, Add>>

const TEXT: BlockRule = {
  filled: ['text', 'citations'],
  deltas: { text_delta: ADDS.text_delta, citations_delta: ADDS.citations_delta },
}
const THINKING: BlockRule = {
  filled: ['thinking', 'signature'],
  deltas: { thinking_delta: ADDS.thinking_delta, signature_delta: ADDS.signature_delta },
}
const TOOL: BlockRule = {
  filled: ['input'],
  deltas: { input_json_delta: ADDS.input_json_delta },
}
const COMPACTION: BlockRule = {
  filled: ['content'],
  deltas: { compaction_delta: ADDS.compaction_delta },
}
/** Blocks without deltas: redacted thinking, results of tools, and types unknown here. */
const WHOLE: BlockRule = { filled: [], deltas: {} }

const RULES: ReadonlyMap<string, BlockRule> = new Map([
  ['text', TEXT],
  ['thinking', THINKING],
  ['tool_use', TOOL],
  ['server_tool_use', TOOL],
  ['mcp_tool_use', TOOL],
  ['compaction', COMPACTION],
])

/**
 * Opens a block. Throws FormatError `unread_member` when a member that deltas fill has content
 * already: readers of deltas would not show this content.
 */
export function openBlock(start: JsonObject): OpenBlock {
  const rule = RULES.get(textIn(start, 'type')) ?? WHOLE
  for (const name of rule.filled) {
    const value = memberOf(start, name)
    if (!isEmpty(value) && !(isJsonObject(value) && !hasMembers(value)))
      throw refuse('unread_member', `expected ${name} to be empty at the start of a block`)
  }
  if (rule === TOOL) textIn(start, 'id')
  if (rule === TOOL) textIn(start, 'name')
  return { start, rule, text: '', citations: [], signature: null, content: null }
}

/**
 * Adds a delta. Throws FormatError `changed_type` for a delta of another block type, `late_event`
 * after a signature, `invalid_form`.
 */
export function addDelta(block: OpenBlock, delta: JsonObject): void {
  const type = textIn(delta, 'type')
  const add = Object.hasOwn(block.rule.deltas, type) ? block.rule.deltas[type] : undefined
  if (add === undefined) throw refuse('changed_type', 'expected a delta of the type of its block')
  add(block, delta)
}

/** The finished block. Throws FormatError `invalid_tool_input`. */
export function closeBlock(block: OpenBlock): JsonObject {
  if (block.rule === TOOL && block.text !== '')
    return { ...block.start, input: parseToolInput(block.text) }
  return blockBefore(block)
}

/** The block so far, while the stream goes on. The input of a tool is its text so far. */
export function blockBefore({
  start,
  rule,
  text,
  citations,
  signature,
  content,
}: OpenBlock): JsonObject {
  if (rule === TOOL) return { ...start, input: text === '' ? {} : text }
  if (rule === COMPACTION) return { ...start, content }
  if (rule === THINKING) return { ...start, thinking: text, signature: signature ?? '' }
  if (rule === TEXT)
    return citations.length === 0
      ? { ...start, text }
      : { ...start, text, citations: [...citations] }
  return start
}
