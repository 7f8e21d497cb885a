import { DEMO_MODELS, type DemoModel, findModel } from './models.ts'
import { createRandom, pickFrom } from './random.ts'
import { type Callable, type DemoMessage, type DemoRequest, textOf } from './request.ts'
import { exampleOf } from './schema-example.ts'

/** One finished choice, before it is put into a body or into chunks. */
export type Choice = { readonly index: number; readonly finishReason: FinishReason } & (
  | { readonly kind: 'text' | 'refusal'; readonly tokens: readonly string[] }
  | { readonly kind: 'tool_calls'; readonly calls: readonly PlannedCall[] }
  | { readonly kind: 'function_call'; readonly call: PlannedCall }
)

type FinishReason = 'stop' | 'length' | 'tool_calls' | 'function_call'

/**
 * Gives the choices that answer a request. Throws DemoError for an unknown model or a schema
 * without example.
 */
export function makeChoices(request: DemoRequest): readonly Choice[] {
  const model = findModel(request.model, DEMO_MODELS)
  const calls = planToolCalls(request)
  const call = planFunctionCall(request)
  return Array.from({ length: request.n ?? 1 }, (_, index): Choice => {
    if (calls.length > 0) return { index, kind: 'tool_calls', calls, finishReason: 'tool_calls' }
    if (call !== null) return { index, kind: 'function_call', call, finishReason: 'function_call' }
    const text = formatText(request, writeText(request, model, index))
    return { index, kind: model === 'demo/refusal' ? 'refusal' : 'text', ...cutText(request, text) }
  })
}

function formatText(request: DemoRequest, text: string): string {
  const format = request.response_format
  if (format?.type === 'json_object') return JSON.stringify({ demonstration: true, text })
  if (format?.type === 'json_schema')
    return JSON.stringify(exampleOf(format.json_schema.schema ?? {}))
  return text
}

/**
 * Ends a text before its first stop sequence and after the tokens that are allowed, whichever comes
 * first.
 */
function cutText(
  request: DemoRequest,
  text: string,
): { tokens: readonly string[]; finishReason: FinishReason } {
  const stops = typeof request.stop === 'string' ? [request.stop] : (request.stop ?? [])
  const ends = stops.filter((stop) => stop !== '').map((stop) => text.indexOf(stop))
  const end = Math.min(text.length, ...ends.filter((position) => position >= 0))
  const tokens = splitTokens(text.slice(0, end))
  const most = request.max_completion_tokens ?? request.max_tokens ?? Number.POSITIVE_INFINITY
  if (tokens.length <= most) return { tokens, finishReason: 'stop' }
  return { tokens: tokens.slice(0, most), finishReason: 'length' }
}

/**
 * What every text of the demonstration begins with, so that nobody takes it for a model's answer.
 */
const DEMO_LABEL = '[demonstration]'
/** Most words that `demo/lorem` writes. */
const WORDS_MAX = 100_000
const WORDS_DEFAULT = 40

/**
 * Gives the text that a model answers for one choice. Depends on the model, the messages, `seed`
 * and the choice's index alone, so that the same request has the same answer, streamed or not.
 */
function writeText(request: DemoRequest, model: DemoModel, choiceIndex: number): string {
  const last = request.messages.at(-1)
  const said = last === undefined ? '' : textOf(last)
  if (model === 'demo/refusal') return `${DEMO_LABEL} This model declines every request.`
  if (last?.role === 'tool' || last?.role === 'function')
    return `${DEMO_LABEL} The tool answered: ${said}`
  if (model === 'demo/lorem')
    return writeLorem(request, lastUserText(request.messages), choiceIndex)
  return `${DEMO_LABEL} You said: ${lastUserText(request.messages)}`
}

/** Gives the text of the last message whose role is user, or the empty text. */
function lastUserText(messages: readonly DemoMessage[]): string {
  const found = messages.findLast((message) => message.role === 'user')
  return found === undefined ? '' : textOf(found)
}

const WORDS: readonly [string, ...string[]] = [
  'lorem',
  'ipsum',
  'dolor',
  'sit',
  'amet',
  'consectetur',
  'adipiscing',
  'elit',
  'sed',
  'do',
  'eiusmod',
  'tempor',
  'incididunt',
  'ut',
  'labore',
  'et',
  'dolore',
  'magna',
  'aliqua',
  'enim',
]

function writeLorem(request: DemoRequest, asked: string, choiceIndex: number): string {
  const random = createRandom(JSON.stringify([request.messages, request.seed ?? null, choiceIndex]))
  const wanted = /(?:^|\s)(\d{1,6}) words\b/.exec(asked)?.[1]
  const count = Math.min(WORDS_MAX, wanted === undefined ? WORDS_DEFAULT : Number(wanted))
  const words = Array.from({ length: count }, () => pickFrom(WORDS, random))
  return [DEMO_LABEL, ...words].join(' ')
}

/** One call of a function that the demonstration decided on; `arguments` is JSON text. */
export type PlannedCall = { readonly name: string; readonly arguments: string }

/**
 * Gives the tool calls to answer with, in the order of `tools`; none means a text answer. Calls are
 * made only when the last message is not a tool's answer, and then
 * - tool_choice names a function: that one;
 * - `none`: none;
 * - `auto` or absent: those whose name stands in the last user message (for `demo/tools` the first,
 *   if none does);
 * - `required`: the same, but the first when none does.
 * Arguments are the JSON object in brackets after the name, as in `get_weather({"city":"Paris"})`,
 * else an example made from the function's parameters.
 */
function planToolCalls(request: DemoRequest): readonly PlannedCall[] {
  const offered = (request.tools ?? []).map((tool) => tool.function)
  const choice = request.tool_choice ?? 'auto'
  if (typeof choice === 'object') return planNamed(request, offered, choice.function.name)
  if (choice === 'none' || hasToolAnswer(request)) return []
  const calls = planMentioned(
    request,
    offered,
    choice === 'required' || request.model === 'demo/tools',
  )
  return request.parallel_tool_calls === false ? calls.slice(0, 1) : calls
}

/**
 * Gives the call of the older `functions` interface, by the same rules, or null for a text answer.
 */
function planFunctionCall(request: DemoRequest): PlannedCall | null {
  const offered = request.functions ?? []
  const choice = request.function_call ?? 'auto'
  if (typeof choice === 'object') return planNamed(request, offered, choice.name)[0] ?? null
  if (choice === 'none' || hasToolAnswer(request)) return null
  return planMentioned(request, offered, request.model === 'demo/tools')[0] ?? null
}

function hasToolAnswer(request: DemoRequest): boolean {
  const role = request.messages.at(-1)?.role
  return role === 'tool' || role === 'function'
}

function planNamed(
  request: DemoRequest,
  offered: readonly Callable[],
  name: string,
): readonly PlannedCall[] {
  const found = offered.filter((callable) => callable.name === name).slice(0, 1)
  return hasToolAnswer(request)
    ? []
    : found.map((callable) => planCall(callable, lastUserText(request.messages)))
}

function planMentioned(
  request: DemoRequest,
  offered: readonly Callable[],
  atLeastOne: boolean,
): readonly PlannedCall[] {
  const said = lastUserText(request.messages)
  const mentioned = offered.filter((callable) => said.includes(callable.name))
  const chosen = mentioned.length > 0 || !atLeastOne ? mentioned : offered.slice(0, 1)
  return chosen.map((callable) => planCall(callable, said))
}

function planCall(callable: Callable, said: string): PlannedCall {
  const given = argumentsAfter(callable.name, said)
  return {
    name: callable.name,
    arguments: given ?? JSON.stringify(exampleOf(callable.parameters ?? {})),
  }
}

/**
 * Gives the JSON object in the brackets after a name, as it was written, or null when there is
 * none.
 */
function argumentsAfter(name: string, said: string): string | null {
  const start = said.indexOf(`${name}(`)
  const end = said.indexOf('})', start)
  if (start < 0 || end < 0) return null
  const inside = said.slice(start + name.length + 1, end + 1)
  try {
    JSON.parse(inside)
    return inside
  } catch {
    return null
  }
}

/**
 * One token of the demonstration: up to eight letters, digits or marks with one blank before them,
 * else one character.
 */
const TOKEN = / ?[\p{L}\p{N}\p{M}]{1,8}|./gsu

/** Gives the tokens of a text, in order; joined together they are the text again. */
export function splitTokens(text: string): readonly string[] {
  return text.match(TOKEN) ?? []
}

/** Gives how many tokens a text has. */
export function countTokens(text: string): number {
  return splitTokens(text).length
}
