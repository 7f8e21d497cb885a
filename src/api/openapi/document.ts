import { z } from 'zod'
import { errorFacts, VALIDATION_CODE } from '#enclave/protocol/error-envelope.ts'
import { ERROR_RULES, type ErrorCode, REPEATED_STATUSES } from '../errors.ts'
import { type Face, faceFor, SIGNED_REFUSAL } from '../faces.ts'
import type { NamedSchema, Route } from '../route.ts'
import { type JsonSchema, jsonSchemaOf } from '../schemas.ts'

/** Interface, part 9. */
const INTERFACE_VERSION = '1.0.0'

/**
 * Returns the OpenAPI 3.1 document of `routes`. The schemas in it also validate requests. Tests
 * compare the reply schemas with real replies. Throws if two schemas have the same name.
 */
export function createDocument(
  routes: readonly Route[],
  info: { readonly title: string; readonly description: string },
): JsonSchema {
  const paths: Record<string, Record<string, JsonSchema>> = {}
  for (const route of routes) {
    const path = route.path.replaceAll(/[:*](\w+)/g, '{$1}')
    paths[path] = { ...paths[path], [route.method.toLowerCase()]: describeRoute(route) }
  }
  return {
    openapi: '3.1.0',
    info: { ...info, version: INTERFACE_VERSION },
    servers: [{ url: '/' }],
    tags: [...new Set(routes.map(({ tag }) => tag))].map((name) => ({ name })),
    paths,
    components: {
      securitySchemes: {
        APIKeyHeader: { type: 'http', scheme: 'bearer', description: 'An API key of this service' },
        XApiKeyHeader: { type: 'apiKey', in: 'header', name: 'x-api-key' },
      },
      schemas: describeSchemas(routes),
    },
  }
}

function describeSchemas(routes: readonly Route[]): Readonly<Record<string, JsonSchema>> {
  const schemas = new Map<string, z.ZodType>()
  const all = routes.flatMap(({ body, form, reply, events, face }) => [
    body,
    form,
    reply,
    events,
    faceFor(face, {}).error ?? undefined,
  ])
  for (const named of [ERROR, FAULTS, ...all]) {
    if (named === undefined) continue
    const other = schemas.get(named.name)
    if (other !== undefined && other !== named.schema)
      throw new TypeError(`two schemas named ${named.name}`)
    schemas.set(named.name, named.schema)
  }
  return Object.fromEntries([...schemas].map(([name, schema]) => [name, jsonSchemaOf(schema)]))
}

function describeRoute(route: Route): JsonSchema {
  const { summary, description, tag, body, form, params, query, headers } = route
  const content =
    form === undefined
      ? body && contentOf(body, JSON_TYPE, body.example)
      : contentOf(form, FORM_TYPE, form.example)
  const parameters = [
    ...describeParameters('path', params),
    ...describeParameters('query', query),
    ...describeParameters('header', headers),
  ]
  return {
    operationId: operationIdOf(route),
    summary,
    ...(description === undefined ? {} : { description }),
    tags: [tag],
    security: describeSecurity(route),
    ...(parameters.length > 0 ? { parameters } : {}),
    ...(content === undefined ? {} : { requestBody: { required: true, content } }),
    responses: describeResponses(route, parameters.length > 0 || content !== undefined),
  }
}

function describeSecurity({ scope, face }: Route): readonly JsonSchema[] {
  if (scope === 'public') return []
  const scopes = scope === 'any' ? [] : [scope]
  const more = faceFor(face, {}).readsApiKeyHeader ? [{ XApiKeyHeader: scopes }] : []
  return [{ APIKeyHeader: scopes }, ...more]
}

/** Code generators name a method by this id: `postV1ChatCompletions`. */
function operationIdOf({ method, path }: Route): string {
  const words = path.split(/[^a-zA-Z0-9]+/).filter((word) => word !== '')
  return [
    method.toLowerCase(),
    ...words.map((word) => word.charAt(0).toUpperCase() + word.slice(1)),
  ].join('')
}

function describeParameters(
  place: 'path' | 'query' | 'header',
  schema: z.ZodType | undefined,
): readonly JsonSchema[] {
  if (schema === undefined) return []
  const { properties, required } = jsonSchemaOf(schema)
  const needed: readonly unknown[] = Array.isArray(required) ? required : []
  return Object.entries(properties as Readonly<Record<string, JsonSchema>>).map(
    ([name, property]) => ({
      name: place === 'header' ? headerName(name) : name,
      in: place,
      required: place === 'path' || needed.includes(name),
      schema: property,
    }),
  )
}

/** Spells a header's name as the HTTP standards do: `Idempotency-Key`. */
function headerName(name: string): string {
  return name.replaceAll(/\b[a-z]/g, (letter) => letter.toUpperCase())
}

function describeResponses(
  route: Route,
  isValidated: boolean,
): Readonly<Record<string, JsonSchema>> {
  const { reply, events } = route
  const face = faceFor(route.face, {})
  const error = face.error ?? ERROR
  const codes = codesByStatus(route, face)
  if (isValidated) {
    const status = face.error === null ? 422 : 400
    codes.set(status, [...(codes.get(status) ?? []), VALIDATION_CODE])
  }
  const responses: Record<string, JsonSchema> = {
    200: {
      description: events === undefined ? 'Success' : `Success. ${face.streamRules}`,
      content: {
        ...describeReply(reply),
        ...(events === undefined ? {} : { 'text/event-stream': { schema: refTo(events) } }),
      },
    },
  }
  for (const [status, all] of codes)
    responses[status] = { description: all.join(', '), content: contentOf(error) }
  const refused = codes.get(422) ?? []
  if (refused.includes(VALIDATION_CODE))
    responses[422] = {
      description: refused.join(', '),
      content:
        refused.length === 1
          ? contentOf(FAULTS)
          : { [JSON_TYPE]: { schema: { oneOf: [refTo(FAULTS), refTo(ERROR)] } } },
    }
  responses.default = { description: 'Another error', content: contentOf(error) }
  return responses
}

/** The members of a reply in JSON are not those of its other forms, such as CSV. */
function describeReply(reply: Route['reply']): JsonSchema {
  const { types = [JSON_TYPE] } = reply
  const isJson = types.includes(JSON_TYPE)
  return Object.fromEntries(
    types.map((type) => [
      type,
      { schema: isJson && type !== JSON_TYPE ? { type: 'string' } : refTo(reply) },
    ]),
  )
}

function codesByStatus(
  { method, scope, body, form, errors = [], providerStatuses = [] }: Route,
  face: Face,
): Map<number, readonly string[]> {
  const codes = new Set<ErrorCode>([
    ...(scope === 'public' ? [] : KEY_ERRORS),
    ...(scope === 'public' || scope === 'any' ? [] : SCOPE_ERRORS),
    ...((body ?? form) === undefined ? [] : BODY_ERRORS),
    ...(method === 'POST' ? [] : ANSWER_ERRORS),
    ...errors,
  ])
  const byStatus = new Map<number, readonly string[]>()
  for (const code of codes) {
    const { status, shouldRetry } = errorFacts(ERROR_RULES[code], {})
    const more = code === 'provider_refused' ? providerStatuses : []
    const given = [...(REPEATED_STATUSES[code] ?? [status]), ...more]
    const faced = new Set(
      given.map((one) => face.statusOf({ code, status: one, shouldRetry, providerStatus: null })),
    )
    for (const one of faced) byStatus.set(one, [...(byStatus.get(one) ?? []), code])
  }
  return byStatus
}

const KEY_ERRORS: readonly ErrorCode[] = [
  'authorization_missing',
  'invalid_credentials',
  'account_disabled',
  'not_ready',
]
const SCOPE_ERRORS: readonly ErrorCode[] = ['insufficient_scope']
const BODY_ERRORS: readonly ErrorCode[] = [
  'unsupported_media_type',
  'body_too_slow',
  'payload_too_large',
  'overloaded',
]
/** A long answer can be refused, except that of a POST (route.ts). */
const ANSWER_ERRORS: readonly ErrorCode[] = ['overloaded']

function contentOf(named: NamedSchema, type: string = JSON_TYPE, example?: object): JsonSchema {
  return { [type]: { schema: refTo(named), ...(example === undefined ? {} : { example }) } }
}

const JSON_TYPE = 'application/json'
const FORM_TYPE = 'multipart/form-data'

function refTo({ name }: NamedSchema): JsonSchema {
  return { $ref: `#/components/schemas/${name}` }
}

const CODES = Object.keys(ERROR_RULES) as readonly ErrorCode[]

/** Interface, part 7. */
const errorReply = z.looseObject({
  response: z.literal('NOK'),
  error: z.strictObject({
    status_code: z.int(),
    code: z.enum(CODES),
    message: z.string(),
    type: z.string(),
    param: z.string().nullable(),
    provider_code: z.string().optional(),
    refusal: SIGNED_REFUSAL.optional(),
  }),
})

/** Interface, part 7, with the first fault in the form that OpenAI's clients read. */
const validationFault = z.strictObject({
  detail: z
    .array(
      z.strictObject({
        loc: z.array(z.union([z.string(), z.int()])),
        msg: z.string(),
        type: z.string(),
      }),
    )
    .min(1),
  error: z.strictObject({
    message: z.string(),
    type: z.literal('invalid_request_error'),
    param: z.string().nullable(),
    code: z.literal(VALIDATION_CODE),
  }),
})

const ERROR: NamedSchema = { name: 'Error', schema: errorReply }
const FAULTS: NamedSchema = { name: 'ValidationFaults', schema: validationFault }
