import { hash, randomBytes } from 'node:crypto'
import type { Choice, PlannedCall } from './choices.ts'
import { countTokens, splitTokens } from './choices.ts'
import { createRandom, type Random } from './random.ts'
import { type DemoRequest, textOf } from './request.ts'

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
  return choice.kind === 'refusal'
    ? { content: null, refusal: entries }
    : { content: entries, refusal: null }
}

type Piece = {
  readonly delta: unknown
  readonly logprobs?: unknown
  readonly finishReason?: string
}

/**
 * Gives the `chat.completion.chunk` objects of an answer, one token at a time, the choices taking
 * turns; with `stream_options.include_usage` a last one without choices carries the usage, and all
 * others say `usage: null`.
 */
export function* writeChunks(
  request: DemoRequest,
  choices: readonly Choice[],
  identity: AnswerIdentity,
): Generator<unknown, void> {
  const includeUsage = request.stream_options?.include_usage === true
  const head = {
    ...identity,
    object: 'chat.completion.chunk',
    ...(includeUsage ? { usage: null } : {}),
  }
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

/** `system_fingerprint` of every answer: says that no model made it. */
const DEMO_FINGERPRINT = 'fp_demonstration'
/** `created` of an answer to a request with `seed`. */
export const SEEDED_CREATED = 1_700_000_000

/** The members that an answer and each of its chunks share. */
type AnswerIdentity = {
  readonly id: string
  readonly created: number
  readonly model: string
  readonly service_tier: 'default'
  readonly system_fingerprint: typeof DEMO_FINGERPRINT
}

/** Ids are a random number of this process followed by a count: new for each answer, at no cost. */
const PROCESS_ID = randomBytes(8).toString('hex')
let answers = 0

/**
 * Gives the identity of one answer. With `seed` in the request the id and the time are derived from
 * the request, so that the same call gives the same answer to the byte; without, they are new for
 * each call.
 */
export function identifyAnswer(request: DemoRequest, nowMs: number): AnswerIdentity {
  const seeded = typeof request.seed === 'number'
  const name = seeded ? hash('sha256', JSON.stringify(request), 'hex').slice(0, 24) : nextName()
  return {
    id: `chatcmpl-demo-${name}`,
    created: seeded ? SEEDED_CREATED : Math.floor(nowMs / 1000),
    model: request.model,
    service_tier: 'default',
    system_fingerprint: DEMO_FINGERPRINT,
  }
}

function nextName(): string {
  answers += 1
  return PROCESS_ID + answers.toString(16).padStart(8, '0')
}

/**
 * Gives the id of a tool call: told apart within an answer, and the same whenever the answer's id
 * is.
 */
function toolCallId(identity: AnswerIdentity, choiceIndex: number, callIndex: number): string {
  return `call_${identity.id.slice('chatcmpl-demo-'.length)}_${choiceIndex}_${callIndex}`
}

/** A token with its made-up log probability, in OpenAI's shape. */
type TokenLogprob = {
  readonly token: string
  readonly bytes: readonly number[]
  readonly logprob: number
}

type TokenLogprobs = TokenLogprob & { readonly top_logprobs: readonly TokenLogprob[] }

/**
 * Gives a function from token to its log probabilities, or null when the request did not ask for
 * them. The figures are drawn from the tokens themselves: deterministic, and without any meaning.
 */
function createLogprobs(request: DemoRequest): ((token: string) => TokenLogprobs) | null {
  if (request.logprobs !== true) return null
  const alternatives = request.top_logprobs ?? 0
  return (token) =>
    describeToken(token, alternatives, createRandom(`${request.seed ?? ''} ${token}`))
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

/**
 * Tokens that every message costs beside its text, and that the answer's beginning costs, as OpenAI
 * counts them.
 */
const TOKENS_PER_MESSAGE = 3

/**
 * Gives the usage object of a request and its choices, counted with the demonstration's own tokens.
 */
function countUsage(
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
