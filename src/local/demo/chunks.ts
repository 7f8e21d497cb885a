import type { Choice } from './choices.ts'
import { type AnswerIdentity, toolCallId } from './identity.ts'
import { createLogprobs } from './logprobs.ts'
import type { DemoRequest } from './request.ts'
import { splitTokens } from './tokens.ts'
import { countUsage } from './usage.ts'

type Piece = { readonly delta: unknown; readonly logprobs?: unknown; readonly finishReason?: string }

/**
 * Gives the `chat.completion.chunk` objects of an answer, one token at a time, the choices taking turns; with
 * `stream_options.include_usage` a last one without choices carries the usage, and all others say `usage: null`.
 */
export function* writeChunks(
  request: DemoRequest,
  choices: readonly Choice[],
  identity: AnswerIdentity,
): Generator<unknown, void> {
  const includeUsage = request.stream_options?.include_usage === true
  const head = { ...identity, object: 'chat.completion.chunk', ...(includeUsage ? { usage: null } : {}) }
  const running = choices.map((choice) => ({
    index: choice.index,
    pieces: writePieces(request, choice, identity),
  }))
  while (running.length > 0) {
    for (const entry of [...running]) {
      const next = entry.pieces.next()
      if (next.done) running.splice(running.indexOf(entry), 1)
      else yield { ...head, choices: [writeChoice(entry.index, next.value)] }
    }
  }
  if (includeUsage) yield { ...head, choices: [], usage: countUsage(request, choices) }
}

function writeChoice(index: number, piece: Piece): unknown {
  const { delta, logprobs = null, finishReason = null } = piece
  return { index, delta, logprobs, finish_reason: finishReason }
}

function* writePieces(
  request: DemoRequest,
  choice: Choice,
  identity: AnswerIdentity,
): Generator<Piece, void> {
  const isText = choice.kind === 'text'
  yield { delta: { role: 'assistant', content: isText ? '' : null, refusal: null } }
  switch (choice.kind) {
    case 'text':
    case 'refusal':
      yield* writeTokens(request, choice)
      break
    case 'function_call':
      yield { delta: { function_call: { name: choice.call.name, arguments: '' } } }
      for (const token of splitTokens(choice.call.arguments))
        yield { delta: { function_call: { arguments: token } } }
      break
    case 'tool_calls':
      yield* writeToolCalls(choice, identity)
      break
  }
  yield { delta: {}, finishReason: choice.finishReason }
}

function* writeTokens(
  request: DemoRequest,
  choice: Extract<Choice, { kind: 'text' | 'refusal' }>,
): Generator<Piece, void> {
  const logprobsOf = createLogprobs(request)
  const member = choice.kind === 'refusal' ? 'refusal' : 'content'
  for (const token of choice.tokens) {
    const logprobs = logprobsOf && { content: null, refusal: null, [member]: [logprobsOf(token)] }
    yield { delta: { [member]: token }, logprobs }
  }
}

function* writeToolCalls(
  choice: Extract<Choice, { kind: 'tool_calls' }>,
  identity: AnswerIdentity,
): Generator<Piece, void> {
  for (const [index, call] of choice.calls.entries()) {
    const id = toolCallId(identity, choice.index, index)
    const start = { index, id, type: 'function', function: { name: call.name, arguments: '' } }
    yield { delta: { tool_calls: [start] } }
    for (const token of splitTokens(call.arguments))
      yield { delta: { tool_calls: [{ index, function: { arguments: token } }] } }
  }
}
