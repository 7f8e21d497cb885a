import { isJsonObject, type JsonObject } from '#attestation/json/value.ts'
import {
  boolean,
  type Form,
  faultsOf,
  found,
  isUnset,
  listOf,
  literal,
  name,
  type ObjectForm,
  object,
  optional,
  text,
} from './form.ts'
import {
  FAULTS_MAX,
  faultLocation,
  MISSING,
  type RequestFault,
  readJson,
  WRONG_TYPE,
} from './request-faults.ts'

/*
 * The form of a chat request (interface, 2.1 and part 8), for encrypted and unencrypted calls. A
 * member that is null counts as unset; unknown members are allowed.
 */

/** The interface has no limit. This limit protects the logs against long model ids. */
export const MODEL_LENGTH_MAX = 512

const STOP_SEQUENCES_MAX = 4
const TOP_LOGPROBS_MAX = 20
const SCHEMA_NAME = /^[a-zA-Z0-9_-]{1,64}$/

/** The interface has no limit. This is OpenAI's limit for choices. */
const CHOICES_MAX = 128

const penalty: Form = { kind: 'number', min: -2, max: 2 }
const dictionary = object({})

const functionCall = object({ name: text, arguments: text })
const toolCall = object({ id: text, type: literal('function'), function: functionCall })

const imageAddress = object({ url: text, detail: optional(text) })

/** Content parts by their type. Contributed nodes accept these parts. */
export const contentParts: Readonly<Record<string, ObjectForm>> = {
  text: object({ text }),
  image_url: object({ image_url: imageAddress }),
  input_audio: object({ input_audio: object({ data: text, format: text }) }),
  file: object({
    file: object({
      file_data: optional(text),
      file_id: optional(text),
      filename: optional(text),
    }),
  }),
  refusal: object({ refusal: text }),
}

/**
 * The parts that providers accept. An image's address may be a text. Parts of other types pass
 * unchanged, because providers send such parts and accept them back.
 */
const providersPart = object(
  { type: name },
  {
    byType: {
      ...contentParts,
      image_url: object({ image_url: { kind: 'either', text, object: imageAddress } }),
    },
  },
)

const REQUIRED_MEMBERS: Readonly<Record<string, readonly string[]>> = {
  developer: ['content'],
  system: ['content'],
  user: ['content'],
  assistant: [],
  tool: ['content', 'tool_call_id'],
  function: ['name'],
}

const WRONG_CONTENT = {
  ...WRONG_TYPE.string,
  msg: 'Input should be a valid string, or a list of content parts',
}

function messageWith(part: Form): Form {
  return object(
    {
      role: literal(...Object.keys(REQUIRED_MEMBERS)),
      content: optional({
        kind: 'either',
        text: { kind: 'text', wrongType: WRONG_CONTENT },
        list: listOf(part),
      }),
      name: optional(text),
      function_call: optional(functionCall),
      tool_calls: optional(listOf(toolCall)),
      tool_call_id: optional(text),
      refusal: optional(text),
    },
    {
      between: (message) =>
        (REQUIRED_MEMBERS[String(message.role)] ?? []).flatMap((member) =>
          isUnset(message[member]) ? [found(MISSING, member)] : [],
        ),
    },
  )
}

const tool = object({
  type: literal('function'),
  function: object({
    name,
    description: optional(text),
    parameters: optional(dictionary),
    strict: optional(boolean),
  }),
})

const namedTool = object({ type: literal('function'), function: object({ name }) })

const jsonSchema = object({
  name: { kind: 'text', pattern: SCHEMA_NAME },
  schema: { kind: 'nullable', form: dictionary },
  description: optional(text),
  strict: optional(boolean),
})

const responseFormat = object(
  {
    type: literal('text', 'json_object', 'json_schema'),
    json_schema: optional(jsonSchema),
  },
  {
    between: ({ type, json_schema: schema }) =>
      type === 'json_schema' && isUnset(schema)
        ? [found({ ...MISSING, msg: "Field required when type is 'json_schema'" }, 'json_schema')]
        : [],
  },
)

/** A chat request whose messages have content parts of the form `part`. */
export function chatFormWith(part: Form): ObjectForm {
  return object(
    {
      messages: listOf(messageWith(part), { min: 1 }),
      model: { kind: 'text', min: 1, max: MODEL_LENGTH_MAX },
      frequency_penalty: optional(penalty),
      logit_bias: optional({ kind: 'numbers' }),
      logprobs: optional(boolean),
      top_logprobs: optional({ kind: 'integer', min: 0, max: TOP_LOGPROBS_MAX }),
      max_tokens: optional({ kind: 'integer', min: 1 }),
      n: optional({ kind: 'integer', min: 1, max: CHOICES_MAX }),
      presence_penalty: optional(penalty),
      response_format: optional(responseFormat),
      seed: optional({ kind: 'integer' }),
      stop: optional({ kind: 'either', text, list: listOf(text, { max: STOP_SEQUENCES_MAX }) }),
      stream: optional(boolean),
      stream_options: optional(object({ include_usage: optional(boolean) })),
      temperature: optional({ kind: 'number', min: 0, max: 2 }),
      top_p: optional({ kind: 'number', min: 0, max: 1 }),
      tools: optional(listOf(tool)),
      tool_choice: optional({
        kind: 'either',
        text: literal('none', 'auto', 'required'),
        object: namedTool,
      }),
      user: optional(text),
    },
    {
      between: (request) => [
        ...setOnlyWhen('logprobs', request, 'top_logprobs'),
        ...setOnlyWhen('stream', request, 'stream_options'),
      ],
    },
  )
}

function setOnlyWhen(other: string, request: JsonObject, member: string) {
  return isUnset(request[member]) || request[other] === true
    ? []
    : [found({ type: 'value_error', msg: `Set this only when ${other} is true` }, member)]
}

export const providersChat = chatFormWith(providersPart)

/** Parses a body (attacker-controlled bytes) as a request for a provider, or returns its faults. */
export function readChatRequest(
  body: Uint8Array,
): { readonly request: JsonObject } | { readonly faults: readonly RequestFault[] } {
  const read = readJson(body)
  if ('fault' in read) return { faults: [read.fault] }
  const { json } = read
  const faults = faultsOf(providersChat, json)
    .slice(0, FAULTS_MAX)
    .map(({ loc, msg, type }) => ({ loc: faultLocation('body', loc), msg, type }))
  return faults.length === 0 && isJsonObject(json) ? { request: json } : { faults }
}
