import { createRandom, pickFrom } from './random.ts'
import { exampleOf, type Schema } from './schema-example.ts'

/** A request to the demonstration, in a form that all APIs share. */
export type Question = {
  readonly model: string
  /** Text of the last user message, or empty. */
  readonly said: string
  /** The tool's answer if it is the last message, else null. */
  readonly toolResult: string | null
  /** How many tool answers follow the last user message. */
  readonly answered: number
  readonly tools: readonly Callable[]
  readonly toolChoice: 'none' | 'auto' | 'required' | { readonly name: string }
  readonly callsMax: number
  /** Null: plain text is requested. `schema: null`: any JSON object is requested. */
  readonly format: { readonly schema: Schema | null } | null
  readonly stops: readonly string[]
  readonly tokensMax: number
  /** All random choices depend on this text only. */
  readonly seed: string
}

/** A message of any API. Tools answer in messages of the kind `tool`. */
export type AskedTurn = { readonly kind: 'user' | 'tool' | 'other'; readonly text: string }

export function readTurns(
  turns: readonly AskedTurn[],
): Pick<Question, 'said' | 'toolResult' | 'answered'> {
  const at = turns.findLastIndex(({ kind }) => kind === 'user')
  const last = turns.at(-1)
  return {
    said: turns[at]?.text ?? '',
    toolResult: last?.kind === 'tool' ? last.text : null,
    answered: turns.slice(at + 1).filter(({ kind }) => kind === 'tool').length,
  }
}

type Callable = {
  readonly name: string
  readonly parameters?: Schema | null | undefined
}

export type ChosenAnswer =
  | {
      readonly kind: 'text' | 'refusal'
      readonly tokens: readonly string[]
      /** True if the text was cut at tokensMax. */
      readonly isCut: boolean
    }
  | { readonly kind: 'calls'; readonly calls: readonly PlannedCall[] }

/** `arguments` is JSON text. */
export type PlannedCall = { readonly name: string; readonly arguments: string }

/**
 * The same question always gets the same answer. Throws DemoError for a schema without an example.
 */
export function chooseAnswer(question: Question): ChosenAnswer {
  const calls = planCalls(question)
  if (calls.length > 0) return { kind: 'calls', calls }
  const { model, format, stops, tokensMax } = question
  const text = formatText(format, writeText(question))
  const ends = stops.map((stop) => text.indexOf(stop)).filter((position) => position >= 0)
  const tokens = splitTokens(text.slice(0, Math.min(text.length, ...ends)))
  const kind = model === 'demo/refusal' ? 'refusal' : 'text'
  return { kind, tokens: tokens.slice(0, tokensMax), isCut: tokens.length > tokensMax }
}

function formatText(format: Question['format'], text: string): string {
  if (format === null) return text
  return JSON.stringify(format.schema ? exampleOf(format.schema) : { demonstration: true, text })
}

/** Every text begins with this label: no model wrote it. */
const DEMO_LABEL = '[demonstration]'
const WORDS_MAX = 100_000
const WORDS_DEFAULT = 40
const WORDS =
  'lorem ipsum dolor sit amet consectetur adipiscing elit sed do eiusmod tempor incididunt ut labore et dolore magna aliqua enim'.split(
    ' ',
  )

function writeText({ model, said, toolResult, seed }: Question): string {
  if (model === 'demo/refusal') return `${DEMO_LABEL} This model declines every request.`
  if (toolResult !== null) return `${DEMO_LABEL} The tool answered: ${toolResult}`
  if (model !== 'demo/lorem') return `${DEMO_LABEL} You said: ${said}`
  const random = createRandom(seed)
  const [, wanted = WORDS_DEFAULT] = /(?:^|\s)(\d{1,6}) words\b/.exec(said) ?? []
  const count = Math.min(WORDS_MAX, Number(wanted))
  return [DEMO_LABEL, ...Array.from({ length: count }, () => pickFrom(WORDS, random))].join(' ')
}

/**
 * Plans no call if `toolChoice` is `none`. `demo/task` makes the calls that the last user message
 * contains, one in each answer. Other models make no call after a tool's answer. Their first answer
 * has these calls, depending on `toolChoice`:
 * - a name: a call of this function;
 * - `auto`: the functions that the last user message names (for `demo/tools`, at least the first
 *   function);
 * - `required`: as `auto`, but at least the first function.
 *
 * A call's arguments are the JSON object after the name, as in `get_weather({"city":"Paris"})`.
 * Without this object, the arguments are an example made from `parameters`.
 */
function planCalls(question: Question): readonly PlannedCall[] {
  const { model, said, toolResult, answered, tools, toolChoice: choice, callsMax } = question
  if (choice === 'none') return []
  if (model === 'demo/task') return writtenCalls(said, tools, answered + 1).slice(answered)
  if (toolResult !== null) return []
  const isNamed = typeof choice === 'object'
  const meant = tools.filter(({ name }) => (isNamed ? name === choice.name : said.includes(name)))
  const isOneDue = !isNamed && (choice === 'required' || model === 'demo/tools')
  const chosen = meant.length > 0 || !isOneDue ? meant : tools.slice(0, 1)
  return chosen
    .slice(0, isNamed ? 1 : Math.min(callsMax, CALLS_MAX))
    .map(({ name, parameters }) => ({
      name,
      arguments: argumentsAfter(name, said) ?? JSON.stringify(exampleOf(parameters ?? {})),
    }))
}

const CALLS_MAX = 32
const NAME_LENGTH_MAX = 64

/**
 * Returns the first `count` calls in a text, such as `read_file({"path":"a.txt"})`. A caller
 * chooses the text, so the time must be proportional to its length.
 */
function writtenCalls(
  text: string,
  tools: readonly Callable[],
  count: number,
): readonly PlannedCall[] {
  const names = new Set(tools.map(({ name }) => name))
  const calls: PlannedCall[] = []
  let end = 0
  for (
    let at = text.indexOf('({');
    at >= 0 && calls.length < count;
    at = text.indexOf('({', at + 1)
  ) {
    if (end <= at) end = text.indexOf('})', at)
    if (end < 0) break
    const [name = ''] = /[\w.-]+$/.exec(text.slice(Math.max(0, at - NAME_LENGTH_MAX), at)) ?? []
    const written = names.has(name) ? objectIn(text.slice(at + 1, end + 1)) : null
    if (written !== null) calls.push({ name, arguments: written })
  }
  return calls
}

export function thinkAbout({ model, answered }: Question): readonly string[] {
  if (model !== 'demo/task') return []
  return splitTokens(`${DEMO_LABEL} No model thinks here. Answers of tools so far: ${answered}.`)
}

function argumentsAfter(name: string, said: string): string | null {
  const start = said.indexOf(`${name}(`)
  const end = said.indexOf('})', start)
  if (start < 0 || end < 0) return null
  return objectIn(said.slice(start + name.length + 1, end + 1))
}

/** Null if the text is not JSON. */
function objectIn(text: string): string | null {
  try {
    JSON.parse(text)
    return text
  } catch {
    return null
  }
}

/**
 * A token is up to eight letters, digits or marks, after at most one blank. Any other character is
 * a token by itself.
 */
const TOKEN = / ?[\p{L}\p{N}\p{M}]{1,8}|./gsu

/** Together the tokens are the whole text. */
export function splitTokens(text: string): readonly string[] {
  return text.match(TOKEN) ?? []
}

export function countTokens(text: string): number {
  return splitTokens(text).length
}
