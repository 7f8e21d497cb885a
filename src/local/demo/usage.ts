import type { Choice } from './choices.ts'
import { type DemoRequest, textOf } from './request.ts'
import { countTokens } from './tokens.ts'
import type { PlannedCall } from './tool-calls.ts'

/** Tokens that every message costs beside its text, and that the answer's beginning costs, as OpenAI counts them. */
export const TOKENS_PER_MESSAGE = 3

/** Gives the usage object of a request and its choices, counted with the demonstration's own tokens. */
export function countUsage(
  request: DemoRequest,
  choices: readonly Choice[],
): Readonly<Record<string, unknown>> {
  const prompt = request.messages.reduce(
    (sum, message) => sum + TOKENS_PER_MESSAGE + countTokens(textOf(message)),
    TOKENS_PER_MESSAGE,
  )
  const completion = choices.reduce((sum, choice) => sum + countChoice(choice), 0)
  return {
    prompt_tokens: prompt,
    completion_tokens: completion,
    total_tokens: prompt + completion,
    prompt_tokens_details: { cached_tokens: 0, audio_tokens: 0 },
    completion_tokens_details: {
      reasoning_tokens: 0,
      audio_tokens: 0,
      accepted_prediction_tokens: 0,
      rejected_prediction_tokens: 0,
    },
  }
}

function countChoice(choice: Choice): number {
  switch (choice.kind) {
    case 'text':
    case 'refusal':
      return choice.tokens.length
    case 'tool_calls':
      return choice.calls.reduce((sum, call) => sum + countCall(call), 0)
    case 'function_call':
      return countCall(choice.call)
  }
}

function countCall(call: PlannedCall): number {
  return countTokens(call.name) + countTokens(call.arguments)
}
