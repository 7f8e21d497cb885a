import { z } from 'zod'
import {
  addIssuesOf,
  addItemIssues,
  boundedInteger,
  boundedList,
  described,
  faultIssue,
  isUnset,
  jsonSchemaOf,
  MODEL_LENGTH_MAX,
} from '../api/schemas.ts'
import { type ChatSize, measureChat } from './chat-tokens.ts'

/** Interface, part 8. */
const STOP_SEQUENCES_MAX = 4
const TOP_LOGPROBS_MAX = 20
const PENALTY_MAX = 2
const TEMPERATURE_MAX = 2
const SCHEMA_NAME_PATTERN = /^[a-zA-Z0-9_-]{1,64}$/

/** Not bounded by the interface: choices as at OpenAI. */
const CHOICES_MAX = 128

/** What the gateway itself needs of a valid chat request; the enclave gets the caller's bytes. */
export type ChatRequest = {
  readonly model: string
  readonly isStream: boolean
  /** Whether the caller asked for the chunk with usage. */
  readonly includesUsage: boolean
  readonly size: ChatSize
}

/** Roles a message may have: those of OpenAI's chat completions. */
const MESSAGE_ROLES = ['developer', 'system', 'user', 'assistant', 'tool', 'function'] as const

const functionCall = z.looseObject({ name: z.string(), arguments: z.string() })

const toolCall = z.looseObject({
  id: z.string(),
  type: z.literal('function'),
  function: functionCall,
})

const imageAddress = z.looseObject({ url: z.string(), detail: z.string().nullish() })

const partsByType: Readonly<Record<string, z.ZodType>> = {
  text: z.looseObject({ text: z.string() }),
  image_url: z.looseObject({ image_url: imageAddress }),
  input_audio: z.looseObject({
    input_audio: z.looseObject({ data: z.string(), format: z.string() }),
  }),
  file: z.looseObject({
    file: z.looseObject({
      file_data: z.string().nullish(),
      file_id: z.string().nullish(),
      filename: z.string().nullish(),
    }),
  }),
  refusal: z.looseObject({ refusal: z.string() }),
}

/** What providers take beside: the address as a text. */
const providersParts: Readonly<Record<string, z.ZodType>> = {
  ...partsByType,
  image_url: z.looseObject({ image_url: byShape({ string: z.string(), object: imageAddress }) }),
}

/** Parts of the types that are known here. */
const knownPart = partOf(partsByType, z.enum(Object.keys(partsByType)), [])

/** Parts of other types pass as they are: providers give out such, and take them back. */
const anyPart = partOf(providersParts, z.string().min(1), [
  {
    type: 'object',
    properties: { type: { type: 'string', minLength: 1, not: { enum: Object.keys(partsByType) } } },
    required: ['type'],
  },
])

function partOf(
  parts: Readonly<Record<string, z.ZodType>>,
  types: z.ZodType<string>,
  others: readonly object[],
) {
  return described(
    z.looseObject({ type: types }).check(({ value, issues }) => {
      const part = Object.hasOwn(parts, value.type) ? parts[value.type] : undefined
      if (part) addIssuesOf(issues, part, value)
    }),
    () => ({
      oneOf: [
        ...Object.entries(parts).map(([type, part]) => ({
          allOf: [
            { type: 'object', properties: { type: { const: type } }, required: ['type'] },
            jsonSchemaOf(part),
          ],
        })),
        ...others,
      ],
    }),
  )
}

/** A string, null, or an array of content parts. */
function contentOf(part: z.ZodType) {
  return described(
    z.unknown().check(({ value, issues }) => {
      if (isUnset(value) || typeof value === 'string') return
      if (Array.isArray(value)) addItemIssues(issues, part, value)
      else
        issues.push(
          faultIssue(
            [],
            'string_type',
            'Input should be a valid string, or a list of content parts',
          ),
        )
    }),
    () => ({ type: ['string', 'array', 'null'], items: jsonSchemaOf(part) }),
  )
}

/**
 * A message of a chat request. Members that are null count as unset; unknown members pass. What a
 * role cannot do without is required: content of those who speak to the model, tool_call_id of a
 * tool's answer, name of a function's.
 */
function messageWith(part: z.ZodType) {
  return z
    .looseObject({
      role: z.enum(MESSAGE_ROLES),
      content: contentOf(part).optional(),
      name: z.string().nullish(),
      function_call: functionCall.nullish(),
      tool_calls: boundedList(toolCall).nullish(),
      tool_call_id: z.string().nullish(),
      refusal: z.string().nullish(),
    })
    .check(({ value, issues }) => {
      for (const name of REQUIRED_MEMBERS[value.role])
        if (isUnset(value[name])) issues.push(faultIssue([name], 'missing', 'Field required'))
    })
}

type Role = (typeof MESSAGE_ROLES)[number]

const REQUIRED_MEMBERS: Readonly<Record<Role, readonly ('content' | 'tool_call_id' | 'name')[]>> = {
  developer: ['content'],
  system: ['content'],
  user: ['content'],
  assistant: [],
  tool: ['content', 'tool_call_id'],
  function: ['name'],
}

const penalty = z.number().min(-PENALTY_MAX).max(PENALTY_MAX)

const tool = z.looseObject({
  type: z.literal('function'),
  function: z.looseObject({
    name: z.string().min(1),
    description: z.string().nullish(),
    parameters: z.looseObject({}).nullish(),
    strict: z.boolean().nullish(),
  }),
})

const namedTool = z.looseObject({
  type: z.literal('function'),
  function: z.looseObject({ name: z.string().min(1) }),
})

const toolChoice = byShape({ string: z.enum(['none', 'auto', 'required']), object: namedTool })

const stop = byShape({
  string: z.string(),
  array: boundedList(z.string(), { max: STOP_SEQUENCES_MAX }),
})

const jsonSchema = z.looseObject({
  name: z.string().regex(SCHEMA_NAME_PATTERN),
  schema: z.looseObject({}).nullable(),
  description: z.string().nullish(),
  strict: z.boolean().nullish(),
})

const logitBias = described(z.unknown().check(checkLogitBias), () => ({
  type: ['object', 'null'],
  additionalProperties: { type: 'number' },
}))

const responseFormat = z
  .looseObject({
    type: z.enum(['text', 'json_object', 'json_schema']),
    json_schema: jsonSchema.nullish(),
  })
  .check(({ value, issues }) => {
    if (value.type !== 'json_schema' || !isUnset(value.json_schema)) return
    issues.push(faultIssue(['json_schema'], 'missing', "Field required when type is 'json_schema'"))
  })

/** Members of a chat request (interface, 2.1); one that is null is unset, unknown ones pass. */
const chatMembers = z
  .looseObject({
    messages: boundedList(messageWith(knownPart), { min: 1 }),
    model: z.string().min(1).max(MODEL_LENGTH_MAX),
    frequency_penalty: penalty.nullish(),
    logit_bias: logitBias.optional(),
    logprobs: z.boolean().nullish(),
    top_logprobs: boundedInteger({ min: 0, max: TOP_LOGPROBS_MAX }).nullish(),
    max_tokens: boundedInteger({ min: 1 }).nullish(),
    n: boundedInteger({ min: 1, max: CHOICES_MAX }).nullish(),
    presence_penalty: penalty.nullish(),
    response_format: responseFormat.nullish(),
    seed: boundedInteger({}).nullish(),
    stop: stop.nullish(),
    stream: z.boolean().nullish(),
    stream_options: z.looseObject({ include_usage: z.boolean().nullish() }).nullish(),
    temperature: z.number().min(0).max(TEMPERATURE_MAX).nullish(),
    top_p: z.number().min(0).max(1).nullish(),
    tools: boundedList(tool).nullish(),
    tool_choice: toolChoice.nullish(),
    user: z.string().nullish(),
  })
  .check(({ value, issues }) => {
    if (!isUnset(value.top_logprobs) && value.logprobs !== true)
      issues.push(
        faultIssue(['top_logprobs'], 'value_error', 'Set this only when logprobs is true'),
      )
    if (!isUnset(value.stream_options) && value.stream !== true)
      issues.push(
        faultIssue(['stream_options'], 'value_error', 'Set this only when stream is true'),
      )
  })

function requestOf(data: z.infer<typeof chatMembers>): ChatRequest {
  return {
    model: data.model,
    isStream: data.stream === true,
    includesUsage: data.stream_options?.include_usage === true,
    size: measureChat(data),
  }
}

/** Body of a plain chat completion. */
export const chatRequest = chatMembers.transform(requestOf)

/**
 * Body of a verified chat completion, which goes to a provider: content parts of any type. It is
 * described with further members that somebody behind the gateway checks.
 */
export function providersRequestWith(members: z.ZodRawShape) {
  const providersMembers = chatMembers.safeExtend({
    messages: boundedList(messageWith(anyPart), { min: 1 }),
  })
  return described(providersMembers.transform(requestOf), () =>
    jsonSchemaOf(providersMembers.safeExtend(members)),
  )
}

/**
 * Schema of a value that is told apart by its JSON type, so that the faults are those of the form
 * that was meant.
 */
function byShape(schemas: {
  readonly string: z.ZodType
  readonly array?: z.ZodType
  readonly object?: z.ZodType
}) {
  const schema = z.unknown().check(({ value, issues }) => {
    const { array, object } = schemas
    const isObject = typeof value === 'object' && value !== null
    const form = Array.isArray(value) ? array : isObject ? object : schemas.string
    addIssuesOf(issues, form ?? schemas.string, value)
  })
  return described(schema, () => ({ oneOf: Object.values(schemas).map(jsonSchemaOf) }))
}

/** An object of numbers. Stops at the first faults like boundedList, for the same reason. */
function checkLogitBias({ value, issues }: z.core.ParsePayload<unknown>): void {
  if (isUnset(value)) return
  if (typeof value !== 'object' || Array.isArray(value)) {
    issues.push(faultIssue([], 'dict_type', 'Input should be a valid dictionary'))
    return
  }
  const wrong = Object.entries(value).find(([, bias]) => typeof bias !== 'number')
  if (wrong) issues.push(faultIssue([wrong[0]], 'float_type', 'Input should be a valid number'))
}
