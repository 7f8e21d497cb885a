import { BYTES_PER_TOKEN, ESTIMATE_MAX } from './limits/estimate.ts'

/** Larger answers are not parsed for their usage alone. */
export const PARSED_LENGTH_MAX = 1024 * 1024

/**
 * Tokens that a completion (JSON text) says it used, prompt included; or, when it does not say, or is very long, an
 * estimate from its length. What a provider or node says is bounded, but believed.
 */
export function usedTokensOf(completion: string, promptTokens: number): number {
  const total = completion.length > PARSED_LENGTH_MAX ? null : readTotal(completion)
  return Math.min(total ?? promptTokens + Math.ceil(completion.length / BYTES_PER_TOKEN), ESTIMATE_MAX)
}

/** Tokens of prompt and answer that a completion (JSON text) states; null when it does not state both. */
export function readUsage(completion: string): { readonly prompt: number; readonly answer: number } | null {
  const { prompt_tokens: prompt, completion_tokens: answer } = usageOf(completion)
  return isCount(prompt) && isCount(answer) ? { prompt, answer } : null
}

function readTotal(completion: string): number | null {
  const { total_tokens: total, prompt_tokens: prompt, completion_tokens: answer } = usageOf(completion)
  if (isCount(total)) return total
  return isCount(prompt) && isCount(answer) ? prompt + answer : null
}

function usageOf(completion: string): Readonly<Record<string, unknown>> {
  const { usage } = JSON.parse(completion) as { readonly usage?: Readonly<Record<string, unknown>> | null }
  return usage ?? {}
}

function isCount(value: unknown): value is number {
  return typeof value === 'number' && Number.isSafeInteger(value) && value >= 0
}
