import { decodeBase64, encodeHex, encodeUtf8, sha256 } from '../bytes.ts'
import { FormatError } from '../errors.ts'
import { canonicalizeJson } from '../json/canonical.ts'
import { JsonError } from '../json/json-error.ts'
import { parseStrictJson } from '../json/parse-strict.ts'
import {
  filterMembers,
  isJsonArray,
  isJsonObject,
  type Json,
  type JsonObject,
  memberAt,
  memberOf,
} from '../json/value.ts'
import { orNull } from '../or-null.ts'

/** The kind of a step. The words are the same for all dialects. */
export type StepKind =
  | 'asked' //    a text for the model; the name is its role
  | 'attached' // an image, a file or audio; the name is its media type
  | 'called' //   the model calls the tool of this name, with these arguments
  | 'returned' // the answer of a tool
  | 'failed' //   the answer of a tool that states an error
  | 'said' //     a text of the model
  | 'refused' //  a refusal of the model
  | 'thought' //  the model's thinking, or its summary
  | 'other' //    an item of another kind, as JSON; the name is its type
  | 'ended' //    the end of a call; the name is the outcome that its receipt states

/** One step of a conversation. The texts are attacker-controlled. */
export type TurnStep = {
  readonly kind: StepKind
  readonly name: string
  readonly text: string
}

/** One item of a request or of an answer, in the form in which items are compared. */
export type TurnItem = {
  readonly step: TurnStep
  /** Items with the same key mean the same. A key has an id only if other items refer to it. */
  readonly key: string
  /** The id that the provider gave the item. Null without an id. */
  readonly id: string | null
  /** True if only a model makes such an item. */
  readonly isAnswer: boolean
  /** True if clients may leave the item out of later requests. */
  readonly isOptional: boolean
}

type ItemTraits = {
  readonly id?: string | null
  readonly isAnswer?: boolean
  readonly isOptional?: boolean
  /** Replaces the text in the key. */
  readonly compared?: Json
}

/** Makes the key from kind, name and `compared`, which is the text by default. */
export function itemOf(
  step: TurnStep,
  { id = null, isAnswer = false, isOptional = false, compared = step.text }: ItemTraits = {},
): TurnItem {
  const key = canonicalizeJson([step.kind, step.name, compared])
  return { step, key, id, isAnswer, isOptional }
}

export function said(text: string, id: string | null, kind: 'said' | 'refused' = 'said'): TurnItem {
  return itemOf({ kind, name: '', text }, { id, isAnswer: true })
}

/**
 * Makes an item of thinking, which clients may leave out. `compared`: what clients send back
 * unchanged, such as the signature or the encrypted form.
 */
export function thought(text: string, id: string | null, compared: Json): TurnItem {
  const shown = text === '' ? '[encrypted]' : text
  const step = { kind: 'thought', name: '', text: shown } as const
  return itemOf(step, { id, isAnswer: true, isOptional: true, compared })
}

/** The name of a tool, after the name of its group or server if it has one. */
export function toolName(group: Json | undefined, name: Json | undefined): string {
  const [of, own] = [writtenOf(group ?? ''), writtenOf(name)]
  return of === '' ? own : `${of}.${own}`
}

/**
 * A call of a tool. The key includes the id, because the tool's answer refers to the id. `input`:
 * how the input is compared.
 */
export function called(
  name: string,
  text: string,
  { id, input }: { readonly id: string | null; readonly input: ComparedInput },
): TurnItem {
  return itemOf({ kind: 'called', name, text }, { id, isAnswer: true, compared: [id, ...input] })
}

/** The first member keeps values and texts apart: `"a"` is a value, and `a` is a text. */
export type ComparedInput = readonly ['value', Json] | readonly ['text', string]

/**
 * Clients write the JSON of arguments again, so it is compared as a value. A blank text is
 * the value {}. A text without a value that all readers share is compared as it is.
 */
export function inputOfArguments(given: Json | undefined): ComparedInput {
  if (typeof given !== 'string') return inputOfValue(given)
  if (given.trim() === '') return ['value', {}]
  const value = (): ComparedInput => ['value', parseStrictJson(encodeUtf8(given))]
  return orNull(value, JsonError) ?? ['text', given]
}

/** A blank text, null and a missing value are {}. */
export function inputOfValue(given: Json | undefined): ComparedInput {
  const isBlank = given === undefined || given === null
  return ['value', isBlank || (typeof given === 'string' && given.trim() === '') ? {} : given]
}

/**
 * A tool's answer to the call with this id: one item for each part of the answer. The items have no
 * name: the call has the name of the tool.
 */
export function returned(
  id: string | null,
  content: Json | undefined,
  isError = false,
): readonly TurnItem[] {
  const kind = isError ? 'failed' : 'returned'
  const parts = partsOf(content)
  return (parts.length === 0 ? [''] : parts).map((part) => {
    const text = textOfPart(part)
    if (text === null) return attachedOr(part, 'tool')
    return itemOf({ kind, name: '', text }, { id, compared: [id, text] })
  })
}

/** Gives each tool answer the name of its tool, from the call with the same id. */
export function nameTools(items: readonly TurnItem[]): readonly TurnItem[] {
  const names = new Map<string, string>()
  return items.map((item) => {
    const { step, id } = item
    if (id !== null && step.kind === 'called') names.set(id, step.name)
    if (step.kind !== 'returned' && step.kind !== 'failed') return item
    return { ...item, step: { ...step, name: names.get(id ?? '') ?? '' } }
  })
}

/** Returns an item for each part of a caller's message. */
export function asked(role: string, content: Json | undefined): readonly TurnItem[] {
  return partsOf(content).map((part) => {
    const text = textOfPart(part)
    return text === null ? attachedOr(part, role) : itemOf({ kind: 'asked', name: role, text })
  })
}

/** An item of any other kind, as JSON. Its member `arguments` is compared as arguments are. */
export function other(name: string, value: Json, traits: ItemTraits = {}): TurnItem {
  const compared = isJsonObject(value) ? withoutMarks(value) : value
  return itemOf({ kind: 'other', name, text: JSON.stringify(value) }, { ...traits, compared })
}

/** A list of parts. A text is one part. Null and an empty text have no parts. */
export function partsOf(content: Json | undefined): readonly Json[] {
  if (content === undefined || content === null || content === '') return []
  return isJsonArray(content) ? content : [content]
}

/** The text, or the JSON of another value. Empty for a missing value. */
export function writtenOf(value: Json | undefined): string {
  return typeof value === 'string' ? value : value === undefined ? '' : JSON.stringify(value)
}

/** Null if the member is missing, empty or not a text. */
export function idIn(object: JsonObject, name: string): string | null {
  const value = memberOf(object, name)
  return typeof value === 'string' && value !== '' ? value : null
}

const TEXT_TYPES = ['text', 'input_text', 'output_text']

/** The text of a part that is only a text. Null for another part. */
export function textOfPart(part: Json): string | null {
  if (typeof part === 'string') return part
  const text = memberAt(part, 'text')
  const isText = TEXT_TYPES.includes(String(memberAt(part, 'type')))
  return isText && typeof text === 'string' ? text : null
}

/** Members that clients add, move or drop without changing the meaning of an item. */
const MARKS = ['id', 'status', 'cache_control']

function withoutMarks(object: JsonObject): JsonObject {
  const kept = filterMembers(object, (name, value) => value !== null && !MARKS.includes(name))
  const given = memberOf(kept, 'arguments')
  return given === undefined ? kept : { ...kept, arguments: inputOfArguments(given) }
}

/** Files are compared by the digest of their bytes, or by their address. */
function attachedOr(part: Json, role: string): TurnItem {
  const found = attachmentIn(part)
  if (found === null) return other(typeIn(part) ?? role, part)
  const { type, text } = found
  return itemOf({ kind: 'attached', name: type, text }, { compared: [role, text] })
}

function typeIn(part: Json): string | null {
  return isJsonObject(part) ? idIn(part, 'type') : null
}

/** Where the dialects keep a file's bytes or its address: the names of the nested members. */
const FILE_PLACES: readonly (readonly string[])[] = [
  ['image_url', 'url'],
  ['image_url'],
  ['file', 'file_data'],
  ['file_data'],
  ['file_url'],
  ['input_audio', 'data'],
  ['source', 'data'],
  ['source', 'url'],
]

function attachmentIn(part: Json): { readonly type: string; readonly text: string } | null {
  const found = FILE_PLACES.map((place) => memberAt(part, ...place))
  const given = found.find((value) => typeof value === 'string')
  if (typeof given !== 'string') return null
  const { media = memberAt(part, 'source', 'media_type'), base64 } = splitDataUrl(given)
  const type = typeof media === 'string' && media !== '' ? media : (typeIn(part) ?? 'file')
  if (/^https?:/i.test(given)) return { type, text: given }
  const bytes =
    memberAt(part, 'source', 'type') === 'text'
      ? encodeUtf8(given)
      : orNull(() => decodeBase64(base64), FormatError)
  if (bytes === null) return null
  return { type, text: `SHA-256 ${encodeHex(sha256(bytes))}, ${bytes.length} bytes` }
}

/** The media type and the data of a data URL (RFC 2397). Any other text is taken as data. */
function splitDataUrl(text: string): { readonly media?: string; readonly base64: string } {
  const comma = text.startsWith('data:') ? text.indexOf(',') : -1
  const [media = '', ...more] = text.slice('data:'.length, comma).split(';')
  const isBase64 = comma >= 0 && more.at(-1) === 'base64'
  return isBase64 ? { media, base64: text.slice(comma + 1) } : { base64: text }
}
