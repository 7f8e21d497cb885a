import type { Callable, DemoRequest } from './request.ts'
import { exampleOf } from './schema-example.ts'
import { lastUserText } from './text.ts'

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
export function planToolCalls(request: DemoRequest): readonly PlannedCall[] {
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
export function planFunctionCall(request: DemoRequest): PlannedCall | null {
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
