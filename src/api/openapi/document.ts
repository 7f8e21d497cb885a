import type { z } from 'zod'
import { type JsonSchema, jsonSchemaOf } from '../described.ts'
import { errorReply, validationFault } from '../error-reply.ts'
import { ERROR_RULES, type ErrorCode } from '../errors.ts'
import type { NamedSchema, Operation, Parameters } from './operation.ts'

/** Version of the interface (interface, part 9). */
export const INTERFACE_VERSION = '1.0.0'

const ERROR: NamedSchema = { name: 'Error', schema: errorReply }
const FAULTS: NamedSchema = { name: 'ValidationFaults', schema: validationFault }

/**
 * The OpenAPI 3.1 document of `operations`. What requests are is made of the very schemas that validate them; what replies are is
 * written down in replies/, and held against real ones by the tests. Throws for two schemas of one name.
 */
export function createDocument(
  operations: readonly Operation[],
  info: { readonly title: string; readonly description: string },
): JsonSchema {
  const paths: Record<string, Record<string, JsonSchema>> = {}
  for (const operation of operations) {
    const path = operation.path.replaceAll(/[:*](\w+)/g, '{$1}')
    paths[path] = { ...paths[path], [operation.method.toLowerCase()]: describeOperation(operation) }
  }
  return {
    openapi: '3.1.0',
    info: { ...info, version: INTERFACE_VERSION },
    servers: [{ url: '/' }],
    tags: [...new Set(operations.map(({ tag }) => tag))].map((name) => ({ name })),
    paths,
    components: {
      securitySchemes: {
        APIKeyHeader: { type: 'http', scheme: 'bearer', description: 'An API key of this service' },
      },
      schemas: describeSchemas(operations),
    },
  }
}

function describeSchemas(operations: readonly Operation[]): Readonly<Record<string, JsonSchema>> {
  const schemas = new Map<string, z.ZodType>()
  const all = operations.flatMap(({ body, reply, events }) => [body, reply, events])
  for (const named of [ERROR, FAULTS, ...all]) {
    if (named === undefined) continue
    const other = schemas.get(named.name)
    if (other !== undefined && other !== named.schema) throw new TypeError(`two schemas named ${named.name}`)
    schemas.set(named.name, named.schema)
  }
  return Object.fromEntries([...schemas].map(([name, schema]) => [name, jsonSchemaOf(schema)]))
}

function describeOperation(operation: Operation): JsonSchema {
  const { summary, description, tag, isKeyed, scope, body, pathParameters, query, headers } = operation
  const parameters = [
    ...describeParameters('path', pathParameters),
    ...describeParameters('query', query),
    ...describeParameters('header', headers),
  ]
  return {
    operationId: operationIdOf(operation),
    summary,
    ...(description === undefined ? {} : { description }),
    tags: [tag],
    security: isKeyed ? [{ APIKeyHeader: scope === undefined ? [] : [scope] }] : [],
    ...(parameters.length > 0 ? { parameters } : {}),
    ...(body === undefined ? {} : { requestBody: { required: true, content: contentOf(body, body.type) } }),
    responses: describeResponses(operation, parameters.length > 0 || body !== undefined),
  }
}

/** `postV1ChatCompletions`: what code generators name methods by. */
function operationIdOf({ method, path }: Operation): string {
  const words = path.split(/[^a-zA-Z0-9]+/).filter((word) => word !== '')
  return [method.toLowerCase(), ...words.map((word) => word.charAt(0).toUpperCase() + word.slice(1))].join('')
}

function describeParameters(
  place: 'path' | 'query' | 'header',
  schema: Parameters | undefined,
): readonly JsonSchema[] {
  if (schema === undefined) return []
  const { properties, required } = jsonSchemaOf(schema)
  const needed: readonly unknown[] = Array.isArray(required) ? required : []
  return Object.entries(properties as Readonly<Record<string, JsonSchema>>).map(([name, property]) => ({
    name,
    in: place,
    required: place === 'path' || needed.includes(name),
    schema: property,
  }))
}

function describeResponses(
  { reply, events, isKeyed, scope, body, errors = [] }: Operation,
  isValidated: boolean,
): Readonly<Record<string, JsonSchema>> {
  const codes = new Set<ErrorCode>([
    ...(isKeyed ? KEY_ERRORS : []),
    ...(scope === undefined ? [] : SCOPE_ERRORS),
    ...(body === undefined ? [] : BODY_ERRORS),
    ...errors,
  ])
  const byStatus = Map.groupBy(codes, (code) => String(ERROR_RULES[code].status))
  const responses: Record<string, JsonSchema> = {
    200: {
      description: events === undefined ? 'Success' : `Success. ${STREAM_RULES}`,
      content: {
        ...Object.assign({}, ...(reply.types ?? [JSON_TYPE]).map((type) => contentOf(reply, type))),
        ...(events === undefined ? {} : { 'text/event-stream': { schema: refTo(events) } }),
      },
    },
  }
  for (const [status, all] of [...byStatus].sort())
    responses[status] = { description: all.join(', '), content: contentOf(ERROR) }
  if (isValidated)
    responses['422'] = { description: 'The request fails validation', content: contentOf(FAULTS) }
  responses.default = { description: 'Another error', content: contentOf(ERROR) }
  return responses
}

/** What any operation refuses that has a key, a scope, a body. */
const KEY_ERRORS: readonly ErrorCode[] = ['authorization_missing', 'invalid_credentials', 'not_ready']
const SCOPE_ERRORS: readonly ErrorCode[] = ['insufficient_scope']
const BODY_ERRORS: readonly ErrorCode[] = ['unsupported_media_type', 'payload_too_large', 'overloaded']

/** Interface, part 6. */
const STREAM_RULES =
  'A stream ends with the data [DONE]; one that fails ends without, with `event: error` and an Error as its data.'

function contentOf(named: NamedSchema, type: string = JSON_TYPE): JsonSchema {
  return { [type]: { schema: refTo(named) } }
}

const JSON_TYPE = 'application/json'

function refTo({ name }: NamedSchema): JsonSchema {
  return { $ref: `#/components/schemas/${name}` }
}
