import { JsonError } from '../../attestation/json/json-error.ts'
import { parseStrictJson } from '../../attestation/json/parse-strict.ts'
import {
  isJsonArray,
  isJsonObject,
  type Json,
  type JsonObject,
  memberOf,
} from '../../attestation/json/value.ts'

/*
 * The bounds of a chat request (interface, 2.1 and part 8). Of other calls the gateway checks them;
 * encrypted ones are held to the same here, without a library, and refused in the same words. A
 * test compares both over generated requests.
 */

/** One fault of a request, as the 422 of the interface has it (part 7). */
export type RequestFault = {
  readonly loc: readonly (string | number)[]
  readonly msg: string
  readonly type: string
}

/** At most so many faults of one request are told. */
const FAULTS_MAX = 50
/** Longer member names are cut where a fault names them: the name is the caller's. */
const LOC_NAME_LENGTH_MAX = 128
const MODEL_LENGTH_MAX = 512
const STOP_SEQUENCES_MAX = 4
const TOP_LOGPROBS_MAX = 20
const PENALTY_MAX = 2
const TEMPERATURE_MAX = 2
const CHOICES_MAX = 128
const SCHEMA_NAME = /^[a-zA-Z0-9_-]{1,64}$/

type Step = string | number
/** `isBound`: the value is of the right type, so that what is between members is looked at. */
type Found = RequestFault & { readonly isBound: boolean }
/** What is wrong with a value; undefined is one that is left out. */
type Check = (value: Json | undefined) => readonly Found[]

/** What a body (attacker-controlled bytes) is: a request, or what is wrong with it. */
export function checkRequest(
  body: Uint8Array,
): { readonly request: JsonObject } | { readonly faults: readonly RequestFault[] } {
  const parsed = parseBody(body)
  if ('faults' in parsed) return parsed
  const { json } = parsed
  const faults = chatRequest(json)
    .slice(0, FAULTS_MAX)
    .map(({ loc, msg, type }) => ({ loc: locOf(loc), msg, type }))
  return faults.length === 0 && isJsonObject(json) ? { request: json } : { faults }
}

function parseBody(
  body: Uint8Array,
): { readonly json: Json } | { readonly faults: readonly RequestFault[] } {
  if (body.length === 0)
    return { faults: [{ loc: ['body'], msg: 'Field required', type: 'missing' }] }
  try {
    return { json: parseStrictJson(body) }
  } catch (error) {
    if (!(error instanceof JsonError)) throw error
    const isSyntax = error.code === 'syntax' || error.code === 'invalid_utf8'
    const loc = isSyntax ? ['body', error.offset] : locOf(error.path)
    const type = error.code === 'syntax' ? 'json_invalid' : error.code
    return { faults: [{ loc, msg: error.message, type }] }
  }
}

function locOf(path: readonly Step[]): readonly Step[] {
  return [
    'body',
    ...path.map((step) => (typeof step === 'string' ? step.slice(0, LOC_NAME_LENGTH_MAX) : step)),
  ]
}

const text = required(
  (value) => typeof value === 'string',
  'string_type',
  'Input should be a valid string',
)
const boolean = required(
  (value) => typeof value === 'boolean',
  'bool_type',
  'Input should be a valid boolean',
)
const dictionary = required(isJsonObject, 'dict_type', 'Input should be a valid dictionary')
const list = required(isJsonArray, 'list_type', 'Input should be a valid list')
const number = required(
  (value) => typeof value === 'number',
  'float_type',
  'Input should be a valid number',
)

const functionCall = members({ name: text, arguments: text })
const toolCall = members({ id: text, type: oneOf('function'), function: functionCall })

const PARTS: Readonly<Record<string, Check>> = {
  text: members({ text }),
  image_url: members({
    image_url: (value) =>
      isJsonObject(value) ? members({ url: text, detail: optional(text) })(value) : text(value),
  }),
  input_audio: members({ input_audio: members({ data: text, format: text }) }),
  file: members({
    file: members({
      file_data: optional(text),
      file_id: optional(text),
      filename: optional(text),
    }),
  }),
  refusal: members({ refusal: text }),
}

/** Types that are not known here pass as they are. */
const contentPart = members({ type: sized({ min: 1 }) }, (part) =>
  Object.hasOwn(PARTS, String(part.type)) ? (PARTS[String(part.type)] ?? text)(part) : [],
)

const content: Check = (value) => {
  if (isUnset(value) || typeof value === 'string') return []
  if (isJsonArray(value)) return itemsOf(contentPart, value)
  return fault([], 'string_type', 'Input should be a valid string, or a list of content parts')
}

const REQUIRED_MEMBERS: Readonly<Record<string, readonly string[]>> = {
  developer: ['content'],
  system: ['content'],
  user: ['content'],
  assistant: [],
  tool: ['content', 'tool_call_id'],
  function: ['name'],
}

const message = members(
  {
    role: oneOf(...Object.keys(REQUIRED_MEMBERS)),
    content,
    name: optional(text),
    function_call: optional(functionCall),
    tool_calls: optional(listOf(toolCall)),
    tool_call_id: optional(text),
    refusal: optional(text),
  },
  (value) =>
    (REQUIRED_MEMBERS[String(value.role)] ?? []).flatMap((name) =>
      isUnset(memberOf(value, name)) ? fault([name], 'missing', 'Field required') : [],
    ),
)

const tool = members({
  type: oneOf('function'),
  function: members({
    name: sized({ min: 1 }),
    description: optional(text),
    parameters: optional(dictionary),
    strict: optional(boolean),
  }),
})

const namedTool = members({
  type: oneOf('function'),
  function: members({ name: sized({ min: 1 }) }),
})
const toolMode = oneOf('none', 'auto', 'required')

const responseFormat = members(
  {
    type: oneOf('text', 'json_object', 'json_schema'),
    json_schema: optional(
      members({
        name: schemaName,
        schema: (value) => (value === null ? [] : dictionary(value)),
        description: optional(text),
        strict: optional(boolean),
      }),
    ),
  },
  ({ type, json_schema: schema }) =>
    type === 'json_schema' && isUnset(schema)
      ? fault(['json_schema'], 'missing', "Field required when type is 'json_schema'")
      : [],
)

const chatRequest = members(
  {
    messages: listOf(message, { min: 1 }),
    model: sized({ min: 1, max: MODEL_LENGTH_MAX }),
    frequency_penalty: optional(between(-PENALTY_MAX, PENALTY_MAX)),
    logit_bias: optional(logitBias),
    logprobs: optional(boolean),
    top_logprobs: optional(integer(0, TOP_LOGPROBS_MAX)),
    max_tokens: optional(integer(1)),
    n: optional(integer(1, CHOICES_MAX)),
    presence_penalty: optional(between(-PENALTY_MAX, PENALTY_MAX)),
    response_format: optional(responseFormat),
    seed: optional(integer()),
    stop: optional((value) =>
      hardened((isJsonArray(value) ? listOf(text, { max: STOP_SEQUENCES_MAX }) : text)(value)),
    ),
    stream: optional(boolean),
    stream_options: optional(members({ include_usage: optional(boolean) })),
    temperature: optional(between(0, TEMPERATURE_MAX)),
    top_p: optional(between(0, 1)),
    tools: optional(listOf(tool)),
    tool_choice: optional((value) => hardened((isJsonObject(value) ? namedTool : toolMode)(value))),
    user: optional(text),
  },
  (request) => [
    ...(!isUnset(memberOf(request, 'top_logprobs')) && memberOf(request, 'logprobs') !== true
      ? fault(['top_logprobs'], 'value_error', 'Set this only when logprobs is true')
      : []),
    ...(!isUnset(memberOf(request, 'stream_options')) && memberOf(request, 'stream') !== true
      ? fault(['stream_options'], 'value_error', 'Set this only when stream is true')
      : []),
  ],
)

/** Whether an optional member is unset: left out, or null. */
function isUnset(value: Json | undefined): value is null | undefined {
  return value === undefined || value === null
}

function fault(loc: readonly Step[], type: string, msg: string): readonly Found[] {
  return [{ loc, msg, type, isBound: false }]
}

function bound(type: string, msg: string): readonly Found[] {
  return [{ loc: [], msg, type, isBound: true }]
}

/** Faults after which nothing between members is looked at, whatever they were. */
function hardened(found: readonly Found[]): readonly Found[] {
  return found.map((one) => ({ ...one, isBound: false }))
}

function below(step: Step, found: readonly Found[]): readonly Found[] {
  return found.map((one) => ({ ...one, loc: [step, ...one.loc] }))
}

function required(
  is: (value: Json | undefined) => boolean,
  type: string,
  msg: string,
): (value: Json | undefined) => readonly Found[] {
  return (value) => {
    if (is(value)) return []
    return value === undefined ? fault([], 'missing', 'Field required') : fault([], type, msg)
  }
}

function optional(check: Check): Check {
  return (value) => (isUnset(value) ? [] : check(value))
}

/** An object: of each of these members, and then `between`, unless a member is of a wrong form. */
function members(
  checks: Readonly<Record<string, Check>>,
  between: (value: JsonObject) => readonly Found[] = () => [],
): Check {
  const named = Object.entries(checks)
  return (value) => {
    if (!isJsonObject(value)) return dictionary(value)
    const found = named.flatMap(([name, check]) => below(name, check(memberOf(value, name))))
    return found.every(({ isBound }) => isBound) ? [...found, ...between(value)] : found
  }
}

/** Stops when there are enough: 10 MiB of `1,1,1,…` would otherwise become millions of faults. */
function itemsOf(item: Check, values: readonly Json[]): readonly Found[] {
  const found: Found[] = []
  for (let index = 0; index < values.length && found.length < FAULTS_MAX; index++)
    found.push(...below(index, item(values[index])))
  return hardened(found)
}

function listOf(item: Check, { min = 0, max = Number.MAX_SAFE_INTEGER } = {}): Check {
  return (value) => {
    if (!isJsonArray(value)) return list(value)
    if (value.length < min) return fault([], 'too_short', `List should have at least ${min} items`)
    if (value.length > max) return fault([], 'too_long', `List should have at most ${max} items`)
    return itemsOf(item, value)
  }
}

/** A text of so many characters (UTF-16 units). */
function sized({ min = 0, max = Number.MAX_SAFE_INTEGER }): Check {
  return (value) => {
    if (typeof value !== 'string') return text(value)
    if (value.length < min)
      return bound('string_too_short', `String should have at least ${min} characters`)
    if (value.length > max)
      return bound('string_too_long', `String should have at most ${max} characters`)
    return []
  }
}

function between(min: number, max: number): Check {
  return (value) => {
    if (typeof value !== 'number') return number(value)
    if (value < min)
      return bound('greater_than_equal', `Input should be greater than or equal to ${min}`)
    return value > max
      ? bound('less_than_equal', `Input should be less than or equal to ${max}`)
      : []
  }
}

/** 1.0 is one. */
function integer(min = Number.MIN_SAFE_INTEGER, max = Number.MAX_SAFE_INTEGER): Check {
  return (value) => {
    if (typeof value !== 'number') return fault([], 'int_type', 'Input should be a valid integer')
    if (!Number.isSafeInteger(value))
      return fault(
        [],
        'int_from_float',
        'Input should be a valid integer, without a fraction and within ±(2^53-1)',
      )
    return hardened(between(min, max)(value))
  }
}

function oneOf(...names: readonly string[]): Check {
  const quoted = names.map((name) => `'${name}'`)
  const listed =
    quoted.length < 2 ? quoted.join() : `${quoted.slice(0, -1).join(', ')} or ${quoted.at(-1)}`
  return required(
    (value) => typeof value === 'string' && names.includes(value),
    'literal_error',
    `Input should be ${listed}`,
  )
}

function schemaName(value: Json | undefined): readonly Found[] {
  if (typeof value !== 'string') return text(value)
  if (SCHEMA_NAME.test(value)) return []
  return bound('string_pattern_mismatch', `String should match pattern '${SCHEMA_NAME}'`)
}

/** An object of numbers; of the first that is none. */
function logitBias(value: Json | undefined): readonly Found[] {
  if (!isJsonObject(value)) return dictionary(value)
  const wrong = Object.entries(value).find(([, bias]) => typeof bias !== 'number')
  return wrong === undefined
    ? []
    : fault([wrong[0]], 'float_type', 'Input should be a valid number')
}
