import { hash, randomBytes } from 'node:crypto'
import { type Choice, countTokens, splitTokens } from './choices.ts'
import { createRandom } from './random.ts'
import { type DemoRequest, textOf } from './request.ts'

/** Gives the body of a `chat.completion`. */
export function writeCompletion(
  request: DemoRequest,
  choices: readonly Choice[],
  identity: AnswerIdentity,
): unknown {
  return {
    ...identity,
    object: 'chat.completion',
    choices: choices.map((choice) => ({
      index: choice.index,
      message: { role: 'assistant', content: null, refusal: null, ...said(choice, identity) },
      logprobs: logprobsOf(request, choice, choice.tokens),
      finish_reason: choice.finishReason,
    })),
    usage: countUsage(request, choices),
  }
}

function said({ index, kind, tokens, calls }: Choice, identity: AnswerIdentity): object {
  if (kind === 'function_call') return { function_call: calls[0] }
  if (kind !== 'tool_calls') return { [kind]: tokens.join('') }
  const called = calls.map((call, at) => ({
    id: toolCallId(identity, index, at),
    type: 'function',
    function: call,
  }))
  return { tool_calls: called }
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
  const usage = includeUsage ? { usage: null } : {}
  const head = { ...identity, object: 'chat.completion.chunk', ...usage }
  let running = choices.map((choice) => writePieces(request, choice, identity))
  while (running.length > 0)
    for (const pieces of running) {
      const { done, value } = pieces.next()
      if (done) running = running.filter((one) => one !== pieces)
      else yield { ...head, choices: [value] }
    }
  if (includeUsage) yield { ...head, choices: [], usage: countUsage(request, choices) }
}

function* writePieces(
  request: DemoRequest,
  choice: Choice,
  identity: AnswerIdentity,
): Generator<unknown, void> {
  const { index, kind, tokens, calls, finishReason } = choice
  const piece = (delta: object, logprobs: unknown = null, finish: string | null = null) => ({
    index,
    delta,
    logprobs,
    finish_reason: finish,
  })
  yield piece({ role: 'assistant', content: kind === 'content' ? '' : null, refusal: null })
  for (const token of tokens) yield piece({ [kind]: token }, logprobsOf(request, choice, [token]))
  for (const [at, call] of calls.entries()) {
    const deltaOf = (fields: object, start = {}) =>
      kind === 'tool_calls'
        ? { tool_calls: [{ index: at, ...start, function: fields }] }
        : { function_call: fields }
    const start = { id: toolCallId(identity, index, at), type: 'function' }
    yield piece(deltaOf({ name: call.name, arguments: '' }, start))
    for (const token of splitTokens(call.arguments)) yield piece(deltaOf({ arguments: token }))
  }
  yield piece({}, null, finishReason)
}

/** `system_fingerprint` of every answer: says that no model made it. */
const DEMO_FINGERPRINT = 'fp_demonstration'
/** `created` of an answer to a request with `seed`. */
export const SEEDED_CREATED = 1_700_000_000
const ID_START = 'chatcmpl-demo-'

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
  const isSeeded = typeof request.seed === 'number'
  const name = isSeeded
    ? hash('sha256', JSON.stringify(request), 'hex').slice(0, 24)
    : PROCESS_ID + (++answers).toString(16).padStart(8, '0')
  return {
    id: `${ID_START}${name}`,
    created: isSeeded ? SEEDED_CREATED : Math.floor(nowMs / 1000),
    model: request.model,
    service_tier: 'default',
    system_fingerprint: DEMO_FINGERPRINT,
  }
}

/** Differs within an answer, and is the same whenever the answer's id is. */
function toolCallId({ id }: AnswerIdentity, choiceIndex: number, callIndex: number): string {
  return `call_${id.slice(ID_START.length)}_${choiceIndex}_${callIndex}`
}

/**
 * Gives made-up log probabilities of tokens, in OpenAI's shape; null when the request did not ask,
 * and for calls. They are drawn from the tokens themselves: the same each time, without a meaning.
 */
function logprobsOf(request: DemoRequest, { kind }: Choice, tokens: readonly string[]): unknown {
  if (request.logprobs !== true || kind === 'tool_calls' || kind === 'function_call') return null
  const entries = tokens.map((token) => describeToken(token, request))
  return { content: null, refusal: null, [kind]: entries }
}

function describeToken(token: string, { seed, top_logprobs: top }: DemoRequest): unknown {
  const random = createRandom(`${seed ?? ''} ${token}`)
  const describe = (text: string, logprob: number) => ({
    token: text,
    bytes: [...Buffer.from(text)],
    logprob,
  })
  const chosen = describe(token, -random())
  const all = Array.from({ length: top ?? 0 }, (_, index) =>
    index === 0 ? chosen : describe(` other${index}`, chosen.logprob - index - random()),
  )
  return { ...chosen, top_logprobs: all }
}

/** What OpenAI counts for each message beside its text, and for the beginning of the answer. */
const TOKENS_PER_MESSAGE = 3

/** Gives the usage of a request and its choices, in tokens of the demonstration. */
function countUsage({ messages }: DemoRequest, choices: readonly Choice[]): object {
  const sum = (counts: readonly number[]) => counts.reduce((total, count) => total + count, 0)
  const texts = messages.map((message) => TOKENS_PER_MESSAGE + countTokens(textOf(message)))
  const prompt = TOKENS_PER_MESSAGE + sum(texts)
  const calls = choices.flatMap((choice) => choice.calls)
  const completion =
    sum(choices.map(({ tokens }) => tokens.length)) +
    sum(calls.map((call) => countTokens(call.name) + countTokens(call.arguments)))
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
