import { canonicalizeJson } from '../../attestation/json/canonical.ts'
import { type JsonSize, measureJson } from '../../attestation/json/json-size.ts'
import {
  isJsonArray,
  isJsonObject,
  type Json,
  type JsonObject,
} from '../../attestation/json/value.ts'

/**
 * Chunks of a stream that carry text mostly differ in nothing but that text, and in the padding
 * that hides its length. A template is what such a chunk is made of, so that the next one is
 * neither parsed nor brought into form again.
 */
export type TextTemplate = {
  /** What stands around the holes of the provider's event, in their order there. */
  readonly pieces: readonly string[]
  readonly holes: readonly HoleName[]
  /** The same of the canonical chunk that is given out for it. */
  readonly givenPieces: readonly string[]
  readonly givenHoles: readonly HoleName[]
  /** The choice that the text belongs to. */
  readonly index: number
  /** Values of an event: as many in each. */
  readonly size: JsonSize
}

/** The text of a chunk, the padding if there is one, and the canonical chunk that is given out. */
type GivenText = {
  readonly text: string
  readonly padding: string | null
  readonly given: string
}

/** Members whose texts differ: a delta's content, and the padding of a chunk that OpenAI sends. */
type HoleName = 'content' | typeof PADDING
export const PADDING = 'obfuscation'

/** Stand for the texts while a template is made. A stream with them elsewhere gets no template. */
const MARKS: Readonly<Record<HoleName, string>> = {
  content: 'text of a chunk',
  [PADDING]: 'padding of a chunk',
}
/** Longer events are no chunks of a token or two. */
const LENGTH_MAX = 16 * 1024

/**
 * The template of an event's data (attacker-controlled); null when it is not one of text alone.
 * `give` says what is given out for an event that follows this one, and changes nothing; null for
 * anything else than one chunk.
 *
 * Of data that `matchText` finds to be of the template, `give` would give the same chunk with the
 * text as the content of the choice's delta, and the padding as a member of the chunk: strings of
 * JSON were put in the places of others, and those places are these, since the marks come out there
 * and nowhere else.
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

/** What is given out for data of the template; null for other data. */
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

/** Where the text of the only member of this name stands; null for none, several, or no text. */
function findText(data: string, name: HoleName): Hole | null {
  const member = `"${name}":`
  const at = data.indexOf(member)
  if (at < 0 || data.includes(member, at + member.length)) return null
  const start = at + member.length + (data.startsWith(' "', at + member.length) ? 2 : 1)
  const end = endOfText(data, start)
  return data[start - 1] === '"' && end > start && data[end] === '"' ? { name, start, end } : null
}

/** Where the text that begins here ends: at a quotation mark, or what canonical JSON escapes. */
function endOfText(data: string, start: number): number {
  const quote = data.indexOf('"', start)
  if (quote >= 0 && PLAIN_TEXT.test(data.slice(start, quote))) return quote
  TEXT_AT.lastIndex = start
  return start + (TEXT_AT.exec(data)?.[0].length ?? 0)
}

/** Printable ASCII but for the quotation mark and the backslash. */
const PLAIN_TEXT = /^[ !#-[\]-~]*$/
/**
 * The inside of a string of JSON that canonical JSON writes alike (RFC 8785, section 3.2.2.2): no
 * control characters, no lone surrogates, and of the escapes the shortest.
 */
const TEXT_AT = /(?:[^"\\\p{Cc}\p{Cs}]|\\["\\bfnrt])+/uy

function decode(written: string): string {
  return written.includes('\\') ? (JSON.parse(`"${written}"`) as string) : written
}

/** Each mark is given out once, or there are more or fewer holes than in the event. */
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
 * The index of the only choice of a chunk that has this text and no more; null when it has more, or
 * ends the choice.
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
