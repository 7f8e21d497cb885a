import { FormatError } from '../../errors.ts'
import {
  filterMembers,
  hasMembers,
  isJsonArray,
  isJsonObject,
  type Json,
  type JsonObject,
  memberOf,
  setMember,
} from '../../json/value.ts'
import { invalidChunk, objectOf } from './chunk-forms.ts'
import { readFinishReason } from './finish-reason.ts'
import { type CallTerms, readToolCalls, type ToolCall, withoutIndex } from './tool-calls.ts'

export type ChoiceState = {
  readonly finishReason: string | null
  readonly toolCalls: readonly ToolCall[]
  /** The call in the older form (`function_call`), at most one. */
  readonly functionCall: readonly ToolCall[]
  readonly content: 'text' | 'parts' | null
  /** First halves of characters that a chunk cut, by the path of the text. */
  readonly halves: ReadonlyMap<string, string>
  /** Numbers and texts of GIVEN_ONCE that earlier chunks had, by path. */
  readonly given: ReadonlyMap<string, Json>
  /** The first type of each unknown member, by path. */
  readonly kinds: ReadonlyMap<string, string>
}

/** A choice while a chunk is read. Its values are replaced, but never changed in place. */
type OpenChoice = { -readonly [Name in keyof ChoiceState]: ChoiceState[Name] }

const NEW_CHOICE: ChoiceState = {
  finishReason: null,
  toolCalls: [],
  functionCall: [],
  content: null,
  halves: new Map(),
  given: new Map(),
  kinds: new Map(),
}

/**
 * Reads the part of a chunk that belongs to one choice (attacker-controlled; its index is already
 * read). `parts`: the opening, the addition and the end, with null for a missing part. `state` is
 * `before` itself if this chunk does not affect the next chunk. Pure. Throws as normalizeChunk
 * does.
 */
export function readChoice(
  before: ChoiceState | undefined,
  choice: JsonObject & { readonly index: number },
  makeId: CallTerms['makeId'],
): { readonly state: ChoiceState; readonly parts: readonly (JsonObject | null)[] } {
  const {
    index,
    delta: given,
    finish_reason: reason,
    logprobs: stated,
    // Readers of streams do not need a whole message, but some would show it.
    message: _,
    ...others
  } = choice
  const open: OpenChoice = { ...(before ?? NEW_CHOICE) }
  const finish = readFinishReason(reason)
  const delta = readDelta(open, objectOf(given ?? {}, 'delta'), makeId)
  const logprobs = readLogprobs(stated)
  const members = withoutNulls(others)
  const isSaying = hasMembers(delta) || logprobs !== null
  if (open.finishReason !== null) {
    if (isSaying) throw invalidChunk('expected no part of a choice after its finish_reason')
    const isMore = finish === null && hasMembers(members)
    const more = { ...members, index, delta: {}, logprobs: null, finish_reason: null }
    return { state: settled(before, open), parts: [null, isMore ? more : null, null] }
  }
  if (finish !== null) finishTexts(open, delta)
  open.finishReason = finish?.reason ?? null
  const own = finish === null ? members : {}
  const isAdding = hasMembers(delta) || logprobs !== null || hasMembers(own)
  return {
    state: settled(before, open),
    parts: [
      before === undefined ? { index, delta: OPENING, logprobs: null, finish_reason: null } : null,
      isAdding ? { ...own, index, delta, logprobs, finish_reason: null } : null,
      finish === null
        ? null
        : {
            ...(finish.word === null ? {} : { stop_reason: finish.word }),
            ...members,
            index,
            delta: { content: '' },
            logprobs: null,
            finish_reason: finish.reason,
          },
    ],
  }
}

function settled(before: ChoiceState | undefined, open: ChoiceState): ChoiceState {
  if (before === undefined) return open
  const isSame =
    before.finishReason === open.finishReason &&
    before.toolCalls === open.toolCalls &&
    before.functionCall === open.functionCall &&
    before.content === open.content &&
    before.halves === open.halves &&
    before.given === open.given &&
    before.kinds === open.kinds
  return isSame ? before : open
}

const OPENING = { role: 'assistant', content: '' }

/** Leaves out null members, empty texts, and the role, which is in the opening. */
function readDelta(
  choice: OpenChoice,
  given: JsonObject,
  makeId: CallTerms['makeId'],
): Record<string, Json> {
  const delta: Record<string, Json> = {}
  const terms: CallTerms = {
    makeId,
    join: (path, text) => joinHalves(choice, path, text),
    once: (path, members) => readOnce(choice, path, members),
  }
  for (const [name, value] of Object.entries(given)) {
    if (value === null || name === 'role') continue
    const read = readMember(choice, { name, value }, terms)
    if (read !== null && read !== '') setMember(delta, name, read)
  }
  return delta
}

function readMember(
  choice: OpenChoice,
  { name, value }: { readonly name: string; readonly value: Json },
  terms: CallTerms,
): Json {
  const isCalled = name === 'tool_calls' ? choice.functionCall : choice.toolCalls
  if ((name === 'tool_calls' || name === 'function_call') && isCalled.length > 0)
    throw invalidChunk('expected calls of one form in a choice')
  if (name === 'tool_calls') {
    const calls = [...choice.toolCalls]
    choice.toolCalls = calls
    const read = readToolCalls(calls, value, terms)
    return read.length === 0 ? null : read
  }
  if (name === 'function_call') return readFunctionCall(choice, value, terms)
  if (name === 'content') return readContent(choice, value, terms)
  if (name === 'refusal' && typeof value !== 'string')
    throw changed('expected refusal to be text or null')
  return memberOf(terms.once('', { [name]: value }), name) ?? null
}

/** After content parts, converts a text into a content part. */
function readContent(choice: OpenChoice, value: Json, { join }: CallTerms): Json {
  if (typeof value === 'string') {
    const text = join('content', value)
    if (text === '') return null
    if (choice.content === 'parts') return [{ type: 'text', text }]
    choice.content = 'text'
    return text
  }
  if (!isJsonArray(value)) throw changed('expected content to be text, parts or null')
  if (value.length === 0) return null
  if (choice.content === 'text') throw changed('expected content to go on as text')
  choice.content = 'parts'
  // Some readers merge parts by their index, and others do not.
  return value.map((part) => (isJsonObject(part) ? withoutIndex(part) : part))
}

/** The older form of a tool call has no id and no index. */
function readFunctionCall(choice: OpenChoice, value: Json, terms: CallTerms): Json {
  const call = { index: 0, function: objectOf(value, 'function_call') }
  const calls = [...choice.functionCall]
  choice.functionCall = calls
  const [read] = readToolCalls(calls, [call], {
    ...terms,
    join: (_, text) => terms.join('function_call arguments', text),
  })
  return read?.function ?? null
}

/** Cuts half a character from the end of a text, and keeps it for the next text at this path. */
function joinHalves(choice: OpenChoice, path: string, text: string): string {
  const half = choice.halves.get(path) ?? ''
  const whole = half + text
  const last = whole.charCodeAt(whole.length - 1)
  const isHalf = last >= 0xd800 && last <= 0xdbff
  if (half === '' && !isHalf) return text
  const halves = new Map(choice.halves)
  if (isHalf) halves.set(path, whole.slice(-1))
  else halves.delete(path)
  choice.halves = halves
  return isHalf ? whole.slice(0, -1) : whole
}

/**
 * Leaves out a repeated id, name or number, because clients append it to the first. Leaves out
 * empty texts, lists and objects, which add nothing. `path` is empty for the delta itself.
 */
function readOnce(choice: OpenChoice, path: string, members: JsonObject): JsonObject {
  const read: Record<string, Json> = {}
  for (const [name, value] of Object.entries(members)) {
    if (value === null) continue
    const place = path === '' ? name : `${path} ${name}`
    keepKind(choice, place, value)
    if (isJsonObject(value)) {
      const inner = readOnce(choice, place, value)
      if (hasMembers(inner)) setMember(read, name, inner)
    } else if (isJsonArray(value)) {
      if (value.length > 0) setMember(read, name, value)
    } else if (typeof value === 'string' && !GIVEN_ONCE.has(name)) {
      const text = joinHalves(choice, place, value)
      if (text !== '') setMember(read, name, text)
    } else if (value !== '' && choice.given.get(place) !== value) {
      choice.given = new Map(choice.given).set(place, value)
      setMember(read, name, value)
    }
  }
  return read
}

/**
 * Refuses a member that continues with another type, because some readers append it and others
 * replace it.
 */
function keepKind(choice: OpenChoice, path: string, value: Json): void {
  if (path.length > PATH_LENGTH_MAX)
    throw invalidChunk(`expected names of at most ${PATH_LENGTH_MAX} characters`)
  const kind = isJsonArray(value) ? 'array' : typeof value
  const known = choice.kinds.get(path)
  if (known === kind) return
  if (known !== undefined) throw changed('expected a member to go on in the type it began with')
  if (choice.kinds.size >= PLACES_MAX)
    throw invalidChunk(`expected at most ${PLACES_MAX} members beside the known ones`)
  choice.kinds = new Map(choice.kinds).set(path, kind)
}

/** Maximum number of members in `kinds`, because the map is copied for each new member. */
const PLACES_MAX = 256
const PATH_LENGTH_MAX = 1_024

const GIVEN_ONCE: ReadonlySet<string> = new Set([
  'id',
  'name',
  'type',
  'format',
  'voice',
  'mime_type',
])

/** Adds the stored half characters to the delta. Throws if a call still has no name. */
function finishTexts(choice: OpenChoice, delta: Record<string, Json>): void {
  if ([...choice.toolCalls, ...choice.functionCall].some(({ isBegun }) => !isBegun))
    throw invalidChunk('expected a tool call to begin with the name of its function')
  if (choice.halves.size === 0) return
  for (const [path, half] of choice.halves) {
    const text = memberOf(delta, path) ?? ''
    const isText = path !== 'content' || choice.content !== 'parts'
    if (typeof text === 'string' && isText && !path.includes(' '))
      setMember(delta, path, text + half)
  }
  choice.halves = NEW_CHOICE.halves
}

/** Lists of tokens, or null. The provider Together sends a number, which no reader uses. */
function readLogprobs(stated: Json | undefined): JsonObject | null {
  if (!isJsonObject(stated)) return null
  const { content, refusal } = stated
  const read = { content: entriesOf(content), refusal: entriesOf(refusal) }
  return read.content === null && read.refusal === null ? null : read
}

/** The same for a whole answer, in which other entries stay as they are. */
export function fillLogprobs(stated: Json | undefined): JsonObject | null {
  if (!isJsonObject(stated)) return null
  const { content, refusal } = stated
  const fill = (list: Json | undefined) =>
    isJsonArray(list) ? list.map((entry) => (isToken(entry) ? fillToken(entry) : entry)) : null
  const filled = { ...stated, content: fill(content), refusal: fill(refusal) }
  return filled.content === null && filled.refusal === null ? null : filled
}

function entriesOf(value: Json | undefined): readonly JsonObject[] | null {
  if (!isJsonArray(value) || value.length === 0 || !value.every(isToken)) return null
  return value.map(fillToken)
}

function fillToken(entry: JsonObject): JsonObject {
  const { top_logprobs: top } = entry
  const tops = isJsonArray(top) ? top.filter(isToken) : []
  return { ...withBytes(entry), top_logprobs: tops.map(withBytes) }
}

function isToken(entry: Json): entry is JsonObject {
  return isJsonObject(entry) && typeof entry.token === 'string' && typeof entry.logprob === 'number'
}

function withBytes(entry: JsonObject): JsonObject {
  return { ...entry, bytes: entry.bytes ?? null }
}

export function withoutNulls(members: JsonObject): JsonObject {
  return filterMembers(members, (_, value) => value !== null)
}

function changed(message: string): FormatError {
  return new FormatError('changed_type', message)
}
