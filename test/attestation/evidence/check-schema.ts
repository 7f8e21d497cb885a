import {
  isJsonArray,
  isJsonObject,
  type Json,
  type JsonObject,
  memberOf,
} from '#attestation/json/value.ts'

/**
 * Whether `value` is valid under a JSON Schema (draft 2020-12), for the keywords that
 * bundle.schema.json uses. Throws on any other keyword, so that none is passed over in silence.
 */
export function isValid(schema: JsonObject, value: Json, root: JsonObject = schema): boolean {
  return Object.entries(schema).every(([keyword, argument]) => {
    const rule = KEYWORDS[keyword]
    if (rule === undefined) throw new Error(`unknown keyword ${keyword}`)
    return rule({
      argument,
      value,
      schema,
      valid: (other, inner) => isValid(asSchema(other, root), inner, root),
    })
  })
}

type Rule = (given: {
  readonly argument: Json
  readonly value: Json
  readonly schema: JsonObject
  readonly valid: (schema: Json, value: Json) => boolean
}) => boolean

const anything: Rule = () => true

const KEYWORDS: Readonly<Record<string, Rule>> = {
  $schema: anything,
  $defs: anything,
  title: anything,
  description: anything,
  const: ({ argument, value }) => argument === value,
  enum: ({ argument, value }) => listOf(argument).includes(value),
  type: ({ argument, value }) =>
    (isJsonArray(argument) ? argument : [argument]).some((type) => isOfType(String(type), value)),
  pattern: ({ argument, value }) =>
    typeof value !== 'string' || new RegExp(String(argument), 'u').test(value),
  minLength: ({ argument, value }) =>
    typeof value !== 'string' || [...value].length >= Number(argument),
  maxLength: ({ argument, value }) =>
    typeof value !== 'string' || [...value].length <= Number(argument),
  minimum: ({ argument, value }) => typeof value !== 'number' || value >= Number(argument),
  maximum: ({ argument, value }) => typeof value !== 'number' || value <= Number(argument),
  minItems: ({ argument, value }) => !isJsonArray(value) || value.length >= Number(argument),
  maxItems: ({ argument, value }) => !isJsonArray(value) || value.length <= Number(argument),
  minProperties: ({ argument, value }) =>
    !isJsonObject(value) || Object.keys(value).length >= Number(argument),
  maxProperties: ({ argument, value }) =>
    !isJsonObject(value) || Object.keys(value).length <= Number(argument),
  items: ({ argument, value, valid }) =>
    !isJsonArray(value) || value.every((item) => valid(argument, item)),
  required: ({ argument, value }) =>
    !isJsonObject(value) || listOf(argument).every((name) => Object.hasOwn(value, String(name))),
  properties: ({ argument, value, valid }) =>
    !isJsonObject(value) ||
    Object.entries(argument as JsonObject).every(([name, inner]) => {
      const member = memberOf(value, name)
      return member === undefined || valid(inner, member)
    }),
  additionalProperties: ({ argument, value, schema }) => {
    if (argument !== false) throw new Error('expected additionalProperties to be false')
    return (
      !isJsonObject(value) ||
      Object.keys(value).every((name) => Object.hasOwn(schema.properties as JsonObject, name))
    )
  },
  dependentSchemas: ({ argument, value, valid }) =>
    !isJsonObject(value) ||
    Object.entries(argument as JsonObject).every(
      ([name, inner]) => !Object.hasOwn(value, name) || valid(inner, value),
    ),
  not: ({ argument, value, valid }) => !valid(argument, value),
  allOf: ({ argument, value, valid }) => listOf(argument).every((one) => valid(one, value)),
  anyOf: ({ argument, value, valid }) => listOf(argument).some((one) => valid(one, value)),
  oneOf: ({ argument, value, valid }) =>
    listOf(argument).filter((one) => valid(one, value)).length === 1,
}

function asSchema(schema: Json, root: JsonObject): JsonObject {
  if (!isJsonObject(schema)) throw new Error('expected a schema')
  const { $ref } = schema
  if ($ref === undefined) return schema
  const name = String($ref).replace('#/$defs/', '')
  return asSchema(memberOf(root.$defs as JsonObject, name) ?? null, root)
}

function isOfType(type: string, value: Json): boolean {
  switch (type) {
    case 'object':
      return isJsonObject(value)
    case 'array':
      return isJsonArray(value)
    case 'null':
      return value === null
    case 'integer':
      return Number.isInteger(value)
    case 'boolean':
      return typeof value === 'boolean'
    case 'string':
      return typeof value === 'string'
    default:
      throw new Error(`unknown type ${type}`)
  }
}

function listOf(value: Json): readonly Json[] {
  if (!isJsonArray(value)) throw new Error('expected an array')
  return value
}
