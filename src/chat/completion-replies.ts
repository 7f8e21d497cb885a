import { z } from 'zod'

// Answers of providers and nodes are passed on unchanged, so these schemas are loose.

const count = z.int().min(0)

const usage = z.looseObject({
  prompt_tokens: count,
  completion_tokens: count,
  total_tokens: count,
  completion_tokens_details: z.looseObject({}).nullish(),
  prompt_tokens_details: z.looseObject({}).nullish(),
})

const topLogprob = z.looseObject({
  token: z.string(),
  bytes: z.array(z.int()).nullish(),
  logprob: z.number(),
})

const logprobs = z.looseObject({
  content: z.array(topLogprob.extend({ top_logprobs: z.array(topLogprob) })).nullish(),
  refusal: z.array(topLogprob.extend({ top_logprobs: z.array(topLogprob) })).nullish(),
})

const calledFunction = z.looseObject({ name: z.string(), arguments: z.string() })

/** Some providers answer in parts: a thought, then text. */
const content = z.union([z.string(), z.array(z.looseObject({}))]).nullish()

const message = z.looseObject({
  role: z.literal('assistant'),
  content,
  refusal: z.string().nullish(),
  function_call: calledFunction.nullish(),
  tool_calls: z
    .array(z.looseObject({ id: z.string(), type: z.literal('function'), function: calledFunction }))
    .nullish(),
  audio: z.looseObject({}).nullish(),
})

const FINISH_REASONS = ['stop', 'length', 'tool_calls', 'content_filter', 'function_call'] as const

const choice = z.looseObject({
  index: z.int(),
  finish_reason: z.enum(FINISH_REASONS),
  logprobs: logprobs.nullish(),
  message,
})

export const chatCompletion = z.looseObject({
  id: z.string(),
  object: z.literal('chat.completion'),
  created: z.int(),
  model: z.string(),
  choices: z.array(choice),
  service_tier: z.string().nullish(),
  system_fingerprint: z.string().nullish(),
  usage: usage.nullish(),
})

/** A provider's answer as it is recorded, even if it was cut. */
export const recordedCompletion = chatCompletion.extend({
  choices: z.array(
    choice.extend({
      finish_reason: z
        .enum(FINISH_REASONS)
        .nullable()
        .describe('Null: the provider stated none, for example in an answer that was cut'),
    }),
  ),
})

/** The last chunk of a verified completion has the proof's members. */
export const chatChunk = z.looseObject({
  id: z.string(),
  object: z.literal('chat.completion.chunk'),
  created: z.int(),
  model: z.string(),
  choices: z.array(
    z.looseObject({
      index: z.int(),
      delta: z.looseObject({ role: z.string().nullish(), content }),
      finish_reason: z.enum(FINISH_REASONS).nullish(),
      logprobs: logprobs.nullish(),
    }),
  ),
  usage: usage.nullish(),
})
