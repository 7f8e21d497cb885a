import { canonicalizeJson } from '../../json/canonical.ts'
import { type Json, type JsonObject, memberOf } from '../../json/value.ts'
import { addId, isEmpty, isSame, listIn, objectIn, refuse, textIn } from '../dialect.ts'
import { type OnToolInput, parseToolInput } from '../tool-input.ts'

type Add = (block: OpenBlock, delta: JsonObject) => void

type BlockRule = {
  /** Members that deltas fill, with their values at the start of the block. */
  readonly empty: JsonObject
  readonly deltas: Readonly<Record<string, Add>>
}

/** The open block of one stream's message. Changed in place. */
export type OpenBlock = {
  readonly start: JsonObject
  readonly rule: BlockRule
  /** The joined deltas: text, thinking, or the JSON text of a tool's input. */
  text: string
  readonly citations: Json[]
  /** The signature of a thinking block. It comes once, after the thinking text. */
  signature: string | null
  /** The members of a compaction. Null before the compaction's only delta. */
  compacted: JsonObject | null
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
  compaction_delta: (block, { type: _, ...members }) => {
    if (block.compacted !== null) throw refuse('late_event', 'expected one text of a compaction')
    block.compacted = members
  },
} as const satisfies Readonly<Record<string, Add>>

const TEXT: BlockRule = {
  empty: { text: '' },
  deltas: { text_delta: ADDS.text_delta, citations_delta: ADDS.citations_delta },
}
const THINKING: BlockRule = {
  empty: { thinking: '', signature: '' },
  deltas: { thinking_delta: ADDS.thinking_delta, signature_delta: ADDS.signature_delta },
}
const TOOL: BlockRule = {
  empty: { input: {} },
  deltas: { input_json_delta: ADDS.input_json_delta },
}
const COMPACTION: BlockRule = {
  empty: { content: null },
  deltas: { compaction_delta: ADDS.compaction_delta },
}
/** Blocks without deltas: redacted thinking, results of tools, and unknown types. */
const WHOLE: BlockRule = { empty: {}, deltas: {} }

const RULES: ReadonlyMap<string, BlockRule> = new Map([
  ['text', TEXT],
  ['thinking', THINKING],
  ['tool_use', TOOL],
  ['server_tool_use', TOOL],
  ['mcp_tool_use', TOOL],
  ['compaction', COMPACTION],
])

/** Applies the rules of a stream to a whole block. Adds missing members that deltas would fill. */
export function readWholeBlock(given: JsonObject, ids: Set<string>): JsonObject {
  const { type = null, id = null, name = null } = given
  const { rule } = openBlock({ type, id, name }, ids)
  const block: Record<string, Json> = { ...given }
  for (const [filled, empty] of Object.entries(rule.empty)) {
    block[filled] = memberOf(given, filled) ?? empty
    if (empty === '') textIn(block, filled)
  }
  if (rule === TEXT && !isEmpty(memberOf(given, 'citations'))) listIn(given, 'citations')
  if (rule === TOOL) parseToolInput(canonicalizeJson(objectIn(block, 'input')))
  return block
}

/**
 * Opens a block. Throws FormatError `unread_member` if a member that deltas fill already has
 * content: readers of deltas would not show it. Throws `changed_identity` for an id in `ids`.
 */
export function openBlock(start: JsonObject, ids: Set<string>): OpenBlock {
  const type = textIn(start, 'type')
  // If the model changes, readers do not all show the same model.
  if (type === 'fallback') throw refuse('changed_identity', 'expected one model')
  const rule = RULES.get(type) ?? WHOLE
  for (const [name, empty] of Object.entries(rule.empty)) {
    const value = memberOf(start, name) ?? null
    if (value !== null && value !== '' && !isSame(value, empty))
      throw refuse('unread_member', `expected ${name} to be empty at the start of a block`)
  }
  if (!isEmpty(memberOf(start, 'citations')) && rule === TEXT)
    throw refuse('unread_member', 'expected citations to be empty at the start of a block')
  if (rule === TOOL && (textIn(start, 'id') === '' || textIn(start, 'name') === ''))
    throw refuse('invalid_form', 'expected a tool call to have an id and a name')
  addId(ids, [memberOf(start, 'id') ?? null])
  const settled = { ...start, ...rule.empty }
  return { start: settled, rule, text: '', citations: [], signature: null, compacted: null }
}

/**
 * Adds a delta. Throws FormatError `changed_type` if the delta belongs to another type of block,
 * `late_event` after a signature, `invalid_form`.
 */
export function addDelta(block: OpenBlock, delta: JsonObject): void {
  const type = textIn(delta, 'type')
  const add = Object.hasOwn(block.rule.deltas, type) ? block.rule.deltas[type] : undefined
  if (add === undefined) throw refuse('changed_type', 'expected a delta of the type of its block')
  add(block, delta)
}

/** Throws FormatError `invalid_tool_input`. */
export function closeBlock(block: OpenBlock, onInput: OnToolInput): JsonObject {
  if (block.rule !== TOOL || block.text === '') return blockBefore(block)
  onInput(block.text)
  return { ...block.start, input: parseToolInput(block.text) }
}

/** Returns the block as it is before its end. The input of a tool is then its text so far. */
export function blockBefore(block: OpenBlock): JsonObject {
  const { start, rule, text, citations, signature, compacted } = block
  if (rule === TOOL) return { ...start, input: text === '' ? {} : text }
  if (rule === COMPACTION) return { ...start, ...compacted }
  if (rule === THINKING) return { ...start, thinking: text, signature: signature ?? '' }
  if (rule === TEXT)
    return citations.length === 0
      ? { ...start, text }
      : { ...start, text, citations: [...citations] }
  return start
}
