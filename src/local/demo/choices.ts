import { DEMO_MODELS, type DemoModel, findModel } from './models.ts'
import { createRandom, pickFrom } from './random.ts'
import { type Callable, type DemoRequest, textOf } from './request.ts'
import { exampleOf } from './schema-example.ts'

/** One finished choice, before it is put into a body or into chunks: a text, or calls. */
export type Choice = {
  readonly index: number
  readonly kind: 'content' | 'refusal' | 'tool_calls' | 'function_call'
  readonly finishReason: 'stop' | 'length' | 'tool_calls' | 'function_call'
  readonly tokens: readonly string[]
  readonly calls: readonly PlannedCall[]
}

/** One call of a function that the demonstration decided on; `arguments` is JSON text. */
type PlannedCall = { readonly name: string; readonly arguments: string }

/**
 * Gives the choices that answer a request. Throws DemoError for an unknown model or a schema
 * without example.
 */
export function makeChoices(request: DemoRequest): readonly Choice[] {
  const model = findModel(request.model, DEMO_MODELS)
  const answer = planAnswer(request)
  return Array.from({ length: request.n ?? 1 }, (_, index): Choice => {
    if (answer !== null) return { index, finishReason: answer.kind, tokens: [], ...answer }
    const text = formatText(request, writeText(request, model, index))
    const kind = model === 'demo/refusal' ? 'refusal' : 'content'
    return { index, kind, calls: [], ...cutText(request, text) }
  })
}

function formatText({ response_format: format }: DemoRequest, text: string): string {
  if (format?.type === 'json_object') return JSON.stringify({ demonstration: true, text })
  if (format?.type === 'json_schema')
    return JSON.stringify(exampleOf(format.json_schema.schema ?? {}))
  return text
}

/** Ends a text before its first stop sequence, or after the tokens that are allowed. */
function cutText(request: DemoRequest, text: string): Pick<Choice, 'tokens' | 'finishReason'> {
  const stops = typeof request.stop === 'string' ? [request.stop] : (request.stop ?? [])
  const ends = stops.filter((stop) => stop !== '').map((stop) => text.indexOf(stop))
  const end = Math.min(text.length, ...ends.filter((position) => position >= 0))
  const tokens = splitTokens(text.slice(0, end))
  const most = request.max_completion_tokens ?? request.max_tokens ?? Number.POSITIVE_INFINITY
  if (tokens.length <= most) return { tokens, finishReason: 'stop' }
  return { tokens: tokens.slice(0, most), finishReason: 'length' }
}

/** What every text of the demonstration begins with, so that no reader takes it for a model's. */
const DEMO_LABEL = '[demonstration]'
/** Most words that `demo/lorem` writes. */
const WORDS_MAX = 100_000
const WORDS_DEFAULT = 40
const WORDS =
  'lorem ipsum dolor sit amet consectetur adipiscing elit sed do eiusmod tempor incididunt ut labore et dolore magna aliqua enim'.split(
    ' ',
  )

/**
 * Gives the text that a model answers for one choice. Depends on the model, the messages, `seed`
 * and the choice's index alone, so that the same request has the same answer, streamed or not.
 */
function writeText(request: DemoRequest, model: DemoModel, choiceIndex: number): string {
  const asked = lastUserText(request)
  if (model === 'demo/refusal') return `${DEMO_LABEL} This model declines every request.`
  const result = toolResult(request)
  if (result !== null) return `${DEMO_LABEL} The tool answered: ${result}`
  if (model !== 'demo/lorem') return `${DEMO_LABEL} You said: ${asked}`
  const random = createRandom(JSON.stringify([request.messages, request.seed ?? null, choiceIndex]))
  const [, wanted = WORDS_DEFAULT] = /(?:^|\s)(\d{1,6}) words\b/.exec(asked) ?? []
  const count = Math.min(WORDS_MAX, Number(wanted))
  return [DEMO_LABEL, ...Array.from({ length: count }, () => pickFrom(WORDS, random))].join(' ')
}

/** Gives the text of the last message whose role is user, or the empty text. */
function lastUserText({ messages }: DemoRequest): string {
  const found = messages.findLast((message) => message.role === 'user')
  return found === undefined ? '' : textOf(found)
}

/** Gives what a tool said, when that is the last message; else null. */
function toolResult({ messages }: DemoRequest): string | null {
  const last = messages.at(-1)
  return last?.role === 'tool' || last?.role === 'function' ? textOf(last) : null
}

/** Gives the calls to answer with, of tools or of the older `functions`; null: a text answers. */
function planAnswer(request: DemoRequest): {
  readonly kind: 'tool_calls' | 'function_call'
  readonly calls: readonly PlannedCall[]
} | null {
  const { tool_choice: toolChoice, function_call: functionChoice } = request
  const tools = planCalls(
    request,
    (request.tools ?? []).map((tool) => tool.function),
    (typeof toolChoice === 'object' ? toolChoice?.function : toolChoice) ?? 'auto',
  )
  if (tools.length > 0)
    return {
      kind: 'tool_calls',
      calls: request.parallel_tool_calls === false ? tools.slice(0, 1) : tools,
    }
  const calls = planCalls(request, request.functions ?? [], functionChoice ?? 'auto').slice(0, 1)
  return calls.length > 0 ? { kind: 'function_call', calls } : null
}

/**
 * Gives the calls of offered functions, in their order, unless the last message is a tool's answer:
 * - the choice names a function: that one;
 * - `none`: no call;
 * - `auto`: those whose name stands in the last user message (for `demo/tools` at least the first);
 * - `required`: the same, and at least the first.
 * Arguments are the JSON object in brackets after the name, as in `get_weather({"city":"Paris"})`,
 * else an example made from the function's parameters.
 */
function planCalls(
  request: DemoRequest,
  offered: readonly Callable[],
  choice: 'none' | 'auto' | 'required' | { readonly name: string },
): readonly PlannedCall[] {
  if (choice === 'none' || toolResult(request) !== null) return []
  const said = lastUserText(request)
  const named = typeof choice === 'object' ? choice.name : null
  const meant = offered.filter(({ name }) =>
    named === null ? said.includes(name) : name === named,
  )
  const isOneDue = named === null && (choice === 'required' || request.model === 'demo/tools')
  const chosen = meant.length > 0 || !isOneDue ? meant : offered.slice(0, 1)
  return (named === null ? chosen : chosen.slice(0, 1)).map(({ name, parameters }) => ({
    name,
    arguments: argumentsAfter(name, said) ?? JSON.stringify(exampleOf(parameters ?? {})),
  }))
}

/** Gives the JSON object in the brackets after a name, as it was written; null without one. */
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
