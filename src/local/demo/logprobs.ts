import { createRandom, type Random } from './random.ts'
import type { DemoRequest } from './request.ts'

/** A token with its made-up log probability, in OpenAI's shape. */
export type TokenLogprob = {
  readonly token: string
  readonly bytes: readonly number[]
  readonly logprob: number
}

export type TokenLogprobs = TokenLogprob & { readonly top_logprobs: readonly TokenLogprob[] }

/**
 * Gives a function from token to its log probabilities, or null when the request did not ask for them.
 * The figures are drawn from the tokens themselves: deterministic, and without any meaning.
 */
export function createLogprobs(request: DemoRequest): ((token: string) => TokenLogprobs) | null {
  if (request.logprobs !== true) return null
  const alternatives = request.top_logprobs ?? 0
  return (token) => describeToken(token, alternatives, createRandom(`${request.seed ?? ''} ${token}`))
}

function describeToken(token: string, alternatives: number, random: Random): TokenLogprobs {
  const chosen = describe(token, -random())
  const others = Array.from({ length: Math.max(0, alternatives - 1) }, (_, index) =>
    describe(` other${index + 1}`, chosen.logprob - 1 - index - random()),
  )
  return { ...chosen, top_logprobs: alternatives > 0 ? [chosen, ...others] : [] }
}

function describe(token: string, logprob: number): TokenLogprob {
  return { token, bytes: [...Buffer.from(token)], logprob }
}
