import type { Choice } from './choices.ts'
import { type AnswerIdentity, toolCallId } from './identity.ts'
import { createLogprobs } from './logprobs.ts'
import type { DemoRequest } from './request.ts'
import { countUsage } from './usage.ts'

/** Gives the body of a `chat.completion`. */
export function writeCompletion(
  request: DemoRequest,
  choices: readonly Choice[],
  identity: AnswerIdentity,
): unknown {
  const logprobsOf = createLogprobs(request)
  return {
    ...identity,
    object: 'chat.completion',
    choices: choices.map((choice) => ({
      index: choice.index,
      message: writeMessage(choice, identity),
      logprobs: logprobsOf && 'tokens' in choice ? writeLogprobs(choice, logprobsOf) : null,
      finish_reason: choice.finishReason,
    })),
    usage: countUsage(request, choices),
  }
}

function writeMessage(choice: Choice, identity: AnswerIdentity): unknown {
  const empty = { role: 'assistant', content: null, refusal: null }
  switch (choice.kind) {
    case 'text':
      return { ...empty, content: choice.tokens.join('') }
    case 'refusal':
      return { ...empty, refusal: choice.tokens.join('') }
    case 'function_call':
      return { ...empty, function_call: choice.call }
    case 'tool_calls': {
      const calls = choice.calls.map((call, index) => ({
        id: toolCallId(identity, choice.index, index),
        type: 'function',
        function: call,
      }))
      return { ...empty, tool_calls: calls }
    }
  }
}

function writeLogprobs(
  choice: Choice & { tokens: readonly string[] },
  logprobsOf: (token: string) => unknown,
): unknown {
  const entries = choice.tokens.map(logprobsOf)
  return choice.kind === 'refusal' ? { content: null, refusal: entries } : { content: entries, refusal: null }
}
