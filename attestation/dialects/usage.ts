import {
  isCount,
  isJsonArray,
  isJsonObject,
  type JsonObject,
  memberAt,
  memberOf,
} from '../json/value.ts'
import type { DialectName } from './dialect-names.ts'

export type TokenUsage = {
  readonly prompt_tokens: number
  readonly completion_tokens: number
  readonly total_tokens: number
}

/** Members of the usage that count tokens. The first member in `prompt` is required. */
const COUNTED: Readonly<Record<DialectName, { prompt: readonly string[]; completion: string }>> = {
  chat: { prompt: ['prompt_tokens'], completion: 'completion_tokens' },
  responses: { prompt: ['input_tokens'], completion: 'output_tokens' },
  messages: {
    prompt: ['input_tokens', 'cache_creation_input_tokens', 'cache_read_input_tokens'],
    completion: 'output_tokens',
  },
}

/** Members that bound the tokens of an answer. A provider ignores those of other dialects. */
const BOUNDS: Readonly<Record<DialectName, readonly string[]>> = {
  chat: ['max_completion_tokens', 'max_tokens'],
  responses: ['max_output_tokens'],
  messages: ['max_tokens'],
}

/**
 * The most tokens of each answer to a request. Null if the request does not bound them, or with a
 * value that programs may read in another way, such as a text.
 */
export function answerBound(dialect: DialectName, body: JsonObject): number | null {
  const given = BOUNDS[dialect].flatMap((name) => memberOf(body, name) ?? [])
  const isBounded = given.every((value) => typeof value === 'number' && value >= 1)
  return isBounded && given.length > 0 ? Math.ceil(Math.max(...given.map(Number))) : null
}

/** Null if the answer states no usage in whole numbers. */
export function usageOf(dialect: DialectName, response: JsonObject): TokenUsage | null {
  const usage = memberOf(response, 'usage')
  if (!isJsonObject(usage)) return null
  const { prompt, completion } = COUNTED[dialect]
  const counts = prompt.map((name, at) => memberOf(usage, name) ?? (at === 0 ? null : 0))
  const [output, stated] = [memberOf(usage, completion), memberOf(usage, 'total_tokens')]
  if (!counts.every(isCount) || !isCount(output)) return null
  const input = counts.reduce((sum, count) => sum + count, 0)
  const total = isCount(stated) ? stated : input + output
  // The provider chose these numbers, so their sum may not be a safe integer.
  if (!isCount(input) || !isCount(total)) return null
  return { prompt_tokens: input, completion_tokens: output, total_tokens: total }
}

/**
 * The model that answered, as the answer states it. If one model refuses a message, Anthropic hands
 * it to another, and a block of the message says so. Null if the answer names no model.
 */
export function answeringModel({ model, content }: JsonObject): string | null {
  const blocks = isJsonArray(content) ? content : []
  const handed = blocks.findLast((block) => memberAt(block, 'type') === 'fallback')
  const last = memberAt(handed, 'to', 'model') ?? model
  return typeof last === 'string' ? last : null
}
