import { findModel } from './models.ts'
import type { DemoRequest } from './request.ts'
import { exampleOf } from './schema-example.ts'
import { writeText } from './text.ts'
import { splitTokens } from './tokens.ts'
import { type PlannedCall, planFunctionCall, planToolCalls } from './tool-calls.ts'

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
  const model = findModel(request.model)
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
