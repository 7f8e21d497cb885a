import { canonicalizeJson } from '#attestation/json/canonical.ts'
import { type JsonSize, measureJson } from '#attestation/json/json-size.ts'
import { isJsonArray, isJsonObject, type Json, type JsonObject } from '#attestation/json/value.ts'

/**
 * Most chunks of a stream differ only in their text, and in the padding that hides the text's
 * length. A template holds the fixed parts: a chunk that matches need not be parsed and normalized
 * again.
 */
export type TextTemplate = {
  /** The fixed parts of the provider's event, in order, between its varying texts. */
  readonly pieces: readonly string[]
  readonly holes: readonly HoleName[]
  /** The fixed parts of the canonical chunk that is passed on, in order. */
  readonly givenPieces: readonly string[]
  readonly givenHoles: readonly HoleName[]
  /** Index of the choice that contains the text. */
  readonly index: number
  /** Size of an event's JSON. All events that match have the same size. */
  readonly size: JsonSize
}

/** The chunk's text, its padding (null without padding), and the canonical chunk to pass on. */
type GivenText = {
  readonly text: string
  readonly padding: string | null
  readonly given: string
}

/** Members whose text varies: a delta's content, and the padding of OpenAI's chunks. */
type HoleName = 'content' | typeof PADDING
export const PADDING = 'obfuscation'

/** Placeholders while a template is made. A stream that contains them gets no template. */
const MARKS: Readonly<Record<HoleName, string>> = {
  content: 'text of a chunk',
  [PADDING]: 'padding of a chunk',
}
/** Longer events hold many tokens, and get no template. */
const LENGTH_MAX = 16 * 1024

/**
 * Makes the template of an event's data (attacker-controlled). Null if the event contains more than
 * text. `give` returns the chunk that would be passed on for an event, or null if there is not
 * exactly one chunk. `give` must have no side effects. For data that the template accepts,
 * `matchText` returns the same chunk as `give`.
 */
export function makeTextTemplate(
  data: string,
  give: (data: string) => JsonObject | null,
): TextTemplate | null {
  if (data.length > LENGTH_MAX) return null
  const found = [findText(data, 'content'), findText(data, PADDING)].filter((hole) => hole !== null)
  const inOrder = found.toSorted((left, right) => left.start - right.start)
  const pieces = inOrder.map(({ start }, at) => data.slice(inOrder[at - 1]?.end ?? 0, start))
  pieces.push(data.slice(inOrder.at(-1)?.end ?? 0))
  const holes = inOrder.map(({ name }) => name)
  if (!holes.includes('content')) return null
  const chunk = give(join(pieces, holes, MARKS))
  if (chunk === null || (holes.includes(PADDING) && chunk[PADDING] !== MARKS[PADDING])) return null
  const index = indexOfText(chunk, MARKS.content)
  const given = splitAtMarks(canonicalizeJson(chunk))
  if (index === null || given.holes.length !== holes.length) return null
  return {
    pieces,
    holes,
    index,
    size: measureJson(data),
    givenPieces: given.pieces,
    givenHoles: given.holes,
  }
}

/** Returns the chunk to pass on if the data matches the template. Otherwise returns null. */
export function matchText(template: TextTemplate, data: string): GivenText | null {
  const { pieces, holes, givenPieces, givenHoles } = template
  const written: Record<HoleName, string> = { content: '', [PADDING]: '' }
  let at = 0
  for (let hole = 0; hole < pieces.length; hole++) {
    const piece = pieces[hole] ?? ''
    if (!data.startsWith(piece, at)) return null
    at += piece.length
    const name = holes[hole]
    if (name === undefined) break
    const end = endOfText(data, at)
    written[name] = data.slice(at, end)
    at = end
  }
  if (at !== data.length || written.content === '') return null
  return {
    text: decode(written.content),
    padding: holes.length > 1 ? decode(written[PADDING]) : null,
    given: join(givenPieces, givenHoles, written),
  }
}

function join(
  pieces: readonly string[],
  holes: readonly HoleName[],
  texts: Readonly<Record<HoleName, string>>,
): string {
  let joined = pieces[0] ?? ''
  for (const [at, name] of holes.entries()) joined += texts[name] + (pieces[at + 1] ?? '')
  return joined
}

type Hole = { readonly name: HoleName; readonly start: number; readonly end: number }

/** Returns the place of the only text member with this name. Null unless there is exactly one. */
function findText(data: string, name: HoleName): Hole | null {
  const member = `"${name}":`
  const at = data.indexOf(member)
  if (at < 0 || data.includes(member, at + member.length)) return null
  const start = at + member.length + (data.startsWith(' "', at + member.length) ? 2 : 1)
  const end = endOfText(data, start)
  return data[start - 1] === '"' && end > start && data[end] === '"' ? { name, start, end } : null
}

/** Returns the index of the end of the canonical text that begins at `start`. */
function endOfText(data: string, start: number): number {
  const quote = data.indexOf('"', start)
  if (quote >= 0 && PLAIN_TEXT.test(data.slice(start, quote))) return quote
  TEXT_AT.lastIndex = start
  return start + (TEXT_AT.exec(data)?.[0].length ?? 0)
}

/** Printable ASCII except the quotation mark and the backslash. */
const PLAIN_TEXT = /^[ !#-[\]-~]*$/
/**
 * Content of a JSON string that canonical JSON writes in the same way (RFC 8785, section 3.2.2.2):
 * no control characters, no lone surrogates, only the shortest escapes.
 */
const TEXT_AT = /(?:[^"\\\p{Cc}\p{Cs}]|\\["\\bfnrt])+/uy

function decode(written: string): string {
  return written.includes('\\') ? (JSON.parse(`"${written}"`) as string) : written
}

/** If a mark is missing or repeated, the result has more or fewer holes than the event. */
function splitAtMarks(given: string): {
  readonly pieces: readonly string[]
  readonly holes: readonly HoleName[]
} {
  const pieces: string[] = []
  const holes: HoleName[] = []
  let from = 0
  for (const { index, 0: mark } of given.matchAll(MARKED)) {
    pieces.push(given.slice(from, index))
    holes.push(mark === MARKS.content ? 'content' : PADDING)
    from = index + mark.length
  }
  return { pieces: [...pieces, given.slice(from)], holes }
}

const MARKED = new RegExp(Object.values(MARKS).join('|'), 'g')

/**
 * Index of a chunk's only choice, if the choice has this text and no more, and has not ended.
 * Otherwise null.
 */
function indexOfText({ choices }: JsonObject, text: string): number | null {
  const [choice, ...others] = isJsonArray(choices) ? choices : []
  if (others.length > 0 || !isJsonObject(choice) || !isJsonObject(choice.delta)) return null
  const { index, delta, finish_reason: reason, logprobs } = choice
  const { content, ...rest } = delta
  const saysText = content === text && reason === null && logprobs === null
  return saysText && typeof index === 'number' && Object.values(rest).every(isNull) ? index : null
}

function isNull(value: Json): boolean {
  return value === null
}
