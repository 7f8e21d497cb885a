import { canonicalizeJson } from '../../json/canonical.ts'
import { isJsonArray, type Json, type JsonObject, memberOf } from '../../json/value.ts'
import { addId, isEmpty, isSame, listIn, objectIn, refuse, textIn } from '../dialect.ts'
import { type OnToolInput, readToolInput } from '../tool-input.ts'

type Add = (block: OpenBlock, delta: JsonObject) => void

type BlockRule = {
  /** Members that deltas fill, with their values at the start of the block. */
  readonly empty: JsonObject
  readonly deltas: Readonly<Record<string, Add>>
  /** The deltas for what the start of a block already has. */
  readonly early: (start: JsonObject) => readonly JsonObject[]
  /** The members that the deltas so far filled. */
  readonly filled: (block: OpenBlock) => JsonObject
}

/** The open block of one stream's message. Changed in place. */
export type OpenBlock = {
  /** The start as the provider sent it, and as callers got it. */
  readonly sent: JsonObject
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

const TEXT: BlockRule = {
  empty: { text: '' },
  deltas: {
    text_delta: (block, delta) => {
      block.text += textIn(delta, 'text')
    },
    citations_delta: (block, delta) => {
      block.citations.push(objectIn(delta, 'citation'))
    },
  },
  early: (start) => [
    ...earlyText(start, 'text', 'text_delta'),
    ...listIn(start, 'citations').map((citation) => ({ type: 'citations_delta', citation })),
  ],
  filled: ({ text, citations }): JsonObject =>
    citations.length === 0 ? { text } : { text, citations: [...citations] },
}
const THINKING: BlockRule = {
  empty: { thinking: '', signature: '' },
  deltas: {
    thinking_delta: (block, delta) => {
      if (block.signature !== null)
        throw refuse('late_event', 'expected no thinking after its signature')
      block.text += textIn(delta, 'thinking')
    },
    signature_delta: (block, delta) => {
      if (block.signature !== null) throw refuse('late_event', 'expected one signature of thinking')
      block.signature = textIn(delta, 'signature')
    },
  },
  early: (start) => [
    ...earlyText(start, 'thinking', 'thinking_delta'),
    ...earlyText(start, 'signature', 'signature_delta'),
  ],
  filled: ({ text, signature }) => ({ thinking: text, signature: signature ?? '' }),
}
const TOOL: BlockRule = {
  empty: { input: {} },
  deltas: {
    input_json_delta: (block, delta) => {
      block.text += textIn(delta, 'partial_json')
    },
  },
  // Deltas may repeat the input at the start, so earlyInput gives it at the end.
  early: () => [],
  filled: ({ text }) => ({ input: text === '' ? {} : text }),
}
const COMPACTION: BlockRule = {
  empty: { content: null },
  deltas: {
    compaction_delta: (block, { type: _, ...members }) => {
      if (block.compacted !== null) throw refuse('late_event', 'expected one text of a compaction')
      block.compacted = members
    },
  },
  early: ({ content = null }) => (content === null ? [] : [{ type: 'compaction_delta', content }]),
  filled: ({ compacted }) => compacted ?? {},
}
/** Blocks without deltas: redacted thinking, results of tools, and unknown types. */
const WHOLE: BlockRule = { empty: {}, deltas: {}, early: () => [], filled: () => ({}) }

const RULES: ReadonlyMap<string, BlockRule> = new Map([
  ['text', TEXT],
  ['thinking', THINKING],
  ['tool_use', TOOL],
  ['server_tool_use', TOOL],
  ['mcp_tool_use', TOOL],
  ['compaction', COMPACTION],
])

function earlyText(start: JsonObject, name: string, type: string): readonly JsonObject[] {
  if ((memberOf(start, name) ?? '') === '') return []
  return [{ type, [name]: textIn(start, name) }]
}

/**
 * Opens a block. Returns it with the deltas for what its start already has. Throws FormatError
 * `changed_identity` for an id in `ids`, `invalid_form`.
 */
export function openBlock(
  sent: JsonObject,
  ids: Set<string>,
): { readonly block: OpenBlock; readonly early: readonly JsonObject[] } {
  const rule = RULES.get(textIn(sent, 'type')) ?? WHOLE
  if (rule === TOOL && (textIn(sent, 'id') === '' || textIn(sent, 'name') === ''))
    throw refuse('invalid_form', 'expected a tool call to have an id and a name')
  addId(ids, [memberOf(sent, 'id') ?? null])
  const start: Record<string, Json> = { ...sent, ...rule.empty }
  if (rule === TEXT && isJsonArray(start.citations)) start.citations = []
  const block = { sent, start, rule, text: '', citations: [], signature: null, compacted: null }
  return { block, early: rule.early(sent) }
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

/** True for a delta that begins the input of a tool with blanks. Some readers cannot parse it. */
export function isBlankInput(block: OpenBlock, { partial_json: text }: JsonObject): boolean {
  return block.text === '' && typeof text === 'string' && text !== '' && text.trim() === ''
}

/** The delta for the input of a tool that only the start of its block has. Null without one. */
export function earlyInput({ sent, rule, text }: OpenBlock): JsonObject | null {
  const input = rule === TOOL ? (memberOf(sent, 'input') ?? null) : null
  if (isEmpty(input) || isSame(input, {})) return null
  const early = typeof input === 'string' ? input : canonicalizeJson(objectIn(sent, 'input'))
  const read = typeof input === 'string' ? null : readToolInput(early)
  if (read === 'text')
    throw refuse('invalid_tool_input', 'expected numbers in the input of a tool up to 2^53 - 1')
  if (text === '') return { type: 'input_json_delta', partial_json: early }
  if (!isSame(inputIn(read ?? readToolInput(early), early), inputIn(readToolInput(text), text)))
    throw refuse('unread_member', 'expected the input of a tool once')
  return null
}

/**
 * Returns the block at its end. `isCut`: the input of a tool is not JSON. Throws FormatError
 * `invalid_tool_input`.
 */
export function closeBlock(
  block: OpenBlock,
  onInput: OnToolInput,
): { readonly block: JsonObject; readonly isCut: boolean } {
  if (block.rule !== TOOL || block.text === '') return { block: blockBefore(block), isCut: false }
  onInput(block.text)
  const read = readToolInput(block.text)
  const input = inputIn(read, block.text)
  return { block: { ...block.start, input }, isCut: read === 'cut' }
}

/** The input of a tool in the answer: an object, or its text if no object holds what it says. */
function inputIn(read: ReturnType<typeof readToolInput>, text: string): Json {
  if (read === 'blank') return {}
  return typeof read === 'string' ? text : read
}

/** Returns the block as it is before its end. The input of a tool is then its text so far. */
export function blockBefore(block: OpenBlock): JsonObject {
  return { ...block.start, ...block.rule.filled(block) }
}
