import { z } from 'zod'
import { isJsonObject, type Json, type JsonObject } from '#attestation/json/value.ts'
import { MODEL_LENGTH_MAX } from '#enclave/protocol/chat-form.ts'
import { FAULTS_MAX } from '#enclave/protocol/request-faults.ts'
import { boundedInteger } from '../api/form-schema.ts'
import { addIssuesOf, described, faultIssue, jsonSchemaOf } from '../api/schemas.ts'

/**
 * OpenAI's limit for inputs, and a number above the token ids of every vocabulary. The interface
 * sets no limits here.
 */
const INPUTS_MAX = 2_048
const TOKEN_ID_MAX = 2 ** 31 - 1

/** Each input gets one embedding. */
export type EmbeddingInputs =
  | { readonly kind: 'texts'; readonly items: readonly string[] }
  | { readonly kind: 'tokens'; readonly items: readonly (readonly number[])[] }

export type EmbeddingRequest = {
  readonly model: string
  readonly inputs: EmbeddingInputs
  readonly encodingFormat: 'float' | 'base64'
  /** All other members that are set, including unknown members. */
  readonly others: JsonObject
}

const NO_INPUT =
  'Input should be a string, a list of strings, a list of integers or a list of lists of integers'

const input = described(
  z.unknown().check(({ value, issues }) => checkInput(value, issues)),
  () => {
    const list = { type: 'array', minItems: 1 }
    const tokens = { ...list, items: jsonSchemaOf(tokenId) }
    const inputs = (items: object) => ({ ...list, maxItems: INPUTS_MAX, items })
    return { oneOf: [jsonSchemaOf(text), inputs(jsonSchemaOf(text)), tokens, inputs(tokens)] }
  },
)

/**
 * Body of `POST /v1/embeddings` (interface, 2.6). An input must not be empty. A null member counts
 * as unset. Unknown members are accepted.
 */
export const embeddingRequest = z
  .looseObject({
    input,
    model: z.string().min(1).max(MODEL_LENGTH_MAX),
    encoding_format: z.enum(['float', 'base64']).nullish(),
    user: z.string().nullish(),
  })
  .transform(({ input, model, encoding_format }) => ({
    model,
    inputs: inputsOf(input),
    encodingFormat: encoding_format ?? 'float',
  }))

/** `json` is the value of the valid body. `others` has the remaining members, in their order. */
export function embeddingRequestOf(
  body: z.output<typeof embeddingRequest>,
  json: Json,
): EmbeddingRequest {
  const { input: _, model: __, encoding_format: ___, ...others } = isJsonObject(json) ? json : {}
  return {
    ...body,
    others: Object.fromEntries(Object.entries(others).filter(([, member]) => member !== null)),
  }
}

type Issues = z.core.$ZodRawIssue[]

/** The first item of a list decides which of the four forms the list must have. */
function checkInput(value: unknown, issues: Issues): void {
  if (value === undefined) issues.push(faultIssue([], 'missing', 'Field required'))
  else if (typeof value === 'string') addIssuesOf(issues, text, value)
  else if (!Array.isArray(value)) issues.push(faultIssue([], 'value_error', NO_INPUT))
  else if (typeof value[0] === 'number') checkTokens(value, issues, [])
  else if (isShape(value[0])) checkItems(value, issues)
  else if (value.length === 0) addIssuesOf(issues, inputList, value)
  else issues.push(faultIssue([], 'value_error', NO_INPUT))
}

const isShape = (first: unknown) => typeof first === 'string' || Array.isArray(first)

const text = z.string().min(1)
const inputList = z.array(z.unknown()).min(1).max(INPUTS_MAX)
const tokenId = boundedInteger({ min: 0, max: TOKEN_ID_MAX })

function checkItems(items: readonly unknown[], issues: Issues): void {
  if (items.length > INPUTS_MAX) {
    addIssuesOf(issues, inputList, items)
    return
  }
  const isTexts = typeof items[0] === 'string'
  for (const [index, item] of items.entries()) {
    if (issues.length >= FAULTS_MAX) return
    if (isTexts) addIssuesOf(issues, text, item, [index])
    else if (Array.isArray(item)) checkTokens(item, issues, [index])
    else issues.push(locatedIssue([index], 'list_type', 'Input should be a valid list'))
  }
}

/**
 * A body may hold millions of tokens. The schema runs only for a wrong token, to describe its
 * fault.
 */
function checkTokens(tokens: readonly unknown[], issues: Issues, path: readonly number[]): void {
  if (tokens.length === 0)
    issues.push(locatedIssue(path, 'too_short', 'List should have at least 1 items'))
  for (let index = 0; index < tokens.length && issues.length < FAULTS_MAX; index++)
    if (!isTokenId(tokens[index])) addIssuesOf(issues, tokenId, tokens[index], [...path, index])
}

function locatedIssue(path: readonly number[], type: string, message: string): Issues[number] {
  return { ...faultIssue([], type, message), path: [...path] }
}

function isTokenId(value: unknown): value is number {
  return Number.isSafeInteger(value) && Number(value) >= 0 && Number(value) <= TOKEN_ID_MAX
}

function inputsOf(input: unknown): EmbeddingInputs {
  if (typeof input === 'string') return { kind: 'texts', items: [input] }
  const items: readonly unknown[] = Array.isArray(input) ? input : []
  if (typeof items[0] === 'string')
    return { kind: 'texts', items: items.filter((item) => typeof item === 'string') }
  const lists = typeof items[0] === 'number' ? [items] : items
  return {
    kind: 'tokens',
    items: lists.map((list) => (Array.isArray(list) ? list.filter(isTokenId) : [])),
  }
}
