import { hash, randomBytes } from 'node:crypto'
import { type DemoAnswer, dataFrame, writeFrames } from './answers.ts'
import { type DemoChatRequest, questionOfChat, usesFunctions } from './chat-request.ts'
import {
  type ChosenAnswer,
  chooseAnswer,
  countTokens,
  type PlannedCall,
  splitTokens,
} from './choices.ts'
import { createRandom } from './random.ts'
import { contentText } from './request.ts'

type ChatAnswer = {
  readonly request: DemoChatRequest
  readonly answers: readonly ChosenAnswer[]
  /** Members of the whole answer and of each chunk. */
  readonly identity: {
    readonly id: string
    readonly created: number
    readonly model: string
    readonly service_tier: 'default'
    readonly system_fingerprint: typeof DEMO_FINGERPRINT
  }
}

/** `system_fingerprint` of every answer. No model made these answers. */
const DEMO_FINGERPRINT = 'fp_demonstration'
/** `created` of an answer to a request with `seed`. */
export const SEEDED_CREATED = 1_700_000_000
/** Ends every stream of a chat completion. */
export const CHAT_END = 'data: [DONE]\n\n'
const ID_START = 'chatcmpl-demo-'

/** Random bytes once per process: an id is these bytes and a counter. */
const PROCESS_ID = randomBytes(8).toString('hex')
let answers = 0

/**
 * With `seed`, the same request gets the same answer, with the same id and time. Throws DemoError.
 */
export function answerChat(request: DemoChatRequest, nowMs: number): DemoAnswer {
  const isSeeded = typeof request.seed === 'number'
  const name = isSeeded
    ? hash('sha256', JSON.stringify(request), 'hex').slice(0, 24)
    : PROCESS_ID + (++answers).toString(16).padStart(8, '0')
  const chat: ChatAnswer = {
    request,
    answers: Array.from({ length: request.n ?? 1 }, (_, index) =>
      chooseAnswer(questionOfChat(request, index)),
    ),
    identity: {
      id: `${ID_START}${name}`,
      created: isSeeded ? SEEDED_CREATED : Math.floor(nowMs / 1000),
      model: request.model,
      service_tier: 'default',
      system_fingerprint: DEMO_FINGERPRINT,
    },
  }
  return {
    whole: () => writeCompletion(chat),
    frames: () => writeFrames(writeChunks(chat), dataFrame),
    end: CHAT_END,
  }
}

function writeCompletion(chat: ChatAnswer): object {
  return {
    ...chat.identity,
    object: 'chat.completion',
    choices: chat.answers.map((answer, index) => ({
      index,
      message: { role: 'assistant', content: null, refusal: null, ...said(chat, answer, index) },
      logprobs: answer.kind === 'calls' ? null : logprobsOf(chat, answer.kind, answer.tokens),
      finish_reason: finishReasonOf(chat, answer),
    })),
    usage: countUsage(chat),
  }
}

function said({ request, identity }: ChatAnswer, answer: ChosenAnswer, index: number): object {
  if (answer.kind !== 'calls') return { [MEMBERS[answer.kind]]: answer.tokens.join('') }
  if (usesFunctions(request)) return { function_call: answer.calls[0] }
  const called = answer.calls.map((call, at) => ({
    ...toolCallOf(identity, index, at),
    function: call,
  }))
  return { tool_calls: called }
}

const MEMBERS = { text: 'content', refusal: 'refusal' } as const

function finishReasonOf({ request }: ChatAnswer, answer: ChosenAnswer): string {
  if (answer.kind !== 'calls') return answer.isCut ? 'length' : 'stop'
  return usesFunctions(request) ? 'function_call' : 'tool_calls'
}

/** The ids of tool calls depend only on the answer's id. */
function toolCallOf({ id }: ChatAnswer['identity'], index: number, at: number): object {
  return { id: `call_${id.slice(ID_START.length)}_${index}_${at}`, type: 'function' }
}

/**
 * Writes one token per chunk, for each choice in turn. With `stream_options.include_usage`, a last
 * chunk has the usage and no choices, and all others have `usage: null`.
 */
function* writeChunks(chat: ChatAnswer): Generator<object> {
  const includeUsage = chat.request.stream_options?.include_usage === true
  const usage = includeUsage ? { usage: null } : {}
  const head = { ...chat.identity, object: 'chat.completion.chunk', ...usage }
  let running = chat.answers.map((answer, index) => writePieces(chat, answer, index))
  while (running.length > 0)
    for (const pieces of running) {
      const { done, value } = pieces.next()
      if (done) running = running.filter((one) => one !== pieces)
      else yield { ...head, choices: [value] }
    }
  if (includeUsage) yield { ...head, choices: [], usage: countUsage(chat) }
}

function* writePieces(
  chat: ChatAnswer,
  answer: ChosenAnswer,
  index: number,
): Generator<unknown, void> {
  const piece = (delta: object, logprobs: unknown = null, finish: string | null = null) => ({
    index,
    delta,
    logprobs,
    finish_reason: finish,
  })
  yield piece({ role: 'assistant', content: answer.kind === 'text' ? '' : null, refusal: null })
  if (answer.kind === 'calls')
    for (const [at, call] of answer.calls.entries())
      for (const delta of callDeltas(chat, call, { index, at })) yield piece(delta)
  else
    for (const token of answer.tokens)
      yield piece({ [MEMBERS[answer.kind]]: token }, logprobsOf(chat, answer.kind, [token]))
  yield piece({}, null, finishReasonOf(chat, answer))
}

function callDeltas(
  { request, identity }: ChatAnswer,
  call: PlannedCall,
  { index, at }: { readonly index: number; readonly at: number },
): readonly object[] {
  const parts = [
    { name: call.name, arguments: '' },
    ...splitTokens(call.arguments).map((token) => ({ arguments: token })),
  ]
  if (usesFunctions(request)) return parts.map((part) => ({ function_call: part }))
  const start = toolCallOf(identity, index, at)
  return parts.map((part, count) => ({
    tool_calls: [{ index: at, ...(count === 0 ? start : {}), function: part }],
  }))
}

/** Invented log probabilities. Null when the request did not ask for them. */
function logprobsOf(
  { request }: ChatAnswer,
  kind: keyof typeof MEMBERS,
  tokens: readonly string[],
): unknown {
  if (request.logprobs !== true) return null
  const entries = tokens.map((token) => describeToken(token, request))
  return { content: null, refusal: null, [MEMBERS[kind]]: entries }
}

function describeToken(token: string, { seed, top_logprobs: top }: DemoChatRequest): unknown {
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

/** OpenAI adds these tokens for each message, and for the beginning of the answer. */
const TOKENS_PER_MESSAGE = 3

function countUsage({ request, answers }: ChatAnswer): object {
  const sum = (counts: readonly number[]) => counts.reduce((total, count) => total + count, 0)
  const texts = request.messages.map(
    ({ content }) => TOKENS_PER_MESSAGE + countTokens(contentText(content ?? '')),
  )
  const prompt = TOKENS_PER_MESSAGE + sum(texts)
  const completion = sum(
    answers.map((answer) =>
      answer.kind === 'calls'
        ? sum(answer.calls.map((call) => countTokens(call.name) + countTokens(call.arguments)))
        : answer.tokens.length,
    ),
  )
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
