import { Ajv2020, type AnySchema, type ValidateFunction } from 'ajv/dist/2020.js'

type Schema = Readonly<Record<string, unknown>>
type Content = Readonly<Record<string, { readonly schema: Schema }>>

/** Part of a request that a parameter is in. */
export type ParameterPlace = 'path' | 'query' | 'header'

/**
 * An operation as the served OpenAPI document has it. `path` is its pattern: `/v1/log/{notary}`.
 */
export type ServedOperation = {
  readonly method: string
  readonly path: string
  readonly security: readonly object[]
  readonly parameters?: readonly {
    readonly name: string
    readonly in: ParameterPlace
    readonly required: boolean
    readonly schema: Schema
  }[]
  readonly requestBody?: { readonly content: Content }
  readonly responses: Readonly<Record<string, { readonly content: Content }>>
}

/** Names an operation. */
export type OperationKey = Pick<ServedOperation, 'method' | 'path'>

/** What a call asks; by default with the key, and without a body. */
export type ApiCall = OperationKey & {
  /** Where it is called, with the query, when that is not the pattern. */
  readonly target?: string
  /** Sent as JSON; FormData and bytes as they are. */
  readonly body?: unknown
  /** In place of the key; null sends none. */
  readonly key?: string | null
  /** Beside the key and the content type, or in their place. */
  readonly headers?: Readonly<Record<string, string>>
}

/**
 * An event of a stream. `name` is null for one of no other kind; `data` is JSON's value, or the
 * text `[DONE]`.
 */
export type StreamEvent = { readonly name: string | null; readonly data: unknown }

/** An answer that is as documented. */
export type ApiReply = {
  readonly status: number
  readonly headers: Headers
  /** JSON of the answer; null of a stream and of an image. */
  readonly value: unknown
  /** Of a stream. */
  readonly events: readonly StreamEvent[]
}

/** A service that is held to the OpenAPI document that it serves. */
export type DocumentedApi = {
  readonly operations: readonly ServedOperation[]
  /** What the document says of an operation. Throws when it does not have it. */
  operation(key: OperationKey): ServedOperation
  /**
   * Makes a call. Throws when it takes over REPLY_TIMEOUT_MS, or its status or answer is not what
   * the document says.
   */
  call(call: ApiCall): Promise<ApiReply>
  /**
   * Whether the document allows a body: of JSON, or the fields of a form (texts, and bytes for
   * files).
   */
  allowsBody(key: OperationKey, body: unknown): boolean
  /** Whether the document allows what a parameter says; undefined leaves it out. */
  allowsParameter(
    key: OperationKey,
    parameter: { readonly in: ParameterPlace; readonly name: string },
    text: unknown,
  ): boolean
  /**
   * What the document says a member of the body, or a parameter, is when it is left out; undefined
   * when it says nothing.
   */
  defaultOf(key: OperationKey, field: string): unknown
}

/** No answer of a healthy service takes as long. */
export const REPLY_TIMEOUT_MS = 10_000

/** Reads the document of the service at `url`, which is called with `key`. */
export async function openDocumentedApi(url: string, key: string): Promise<DocumentedApi> {
  const document = (await (await fetch(`${url}/openapi.json`)).json()) as ServedDocument
  const operations = Object.entries(document.paths).flatMap(([path, methods]) =>
    Object.entries(methods).map(([method, rest]) => ({
      ...rest,
      path,
      method: method.toUpperCase(),
    })),
  )
  const { validate, validateTexts } = createValidators(document)

  function operation({ method, path }: OperationKey): ServedOperation {
    const found = operations.find((one) => one.method === method && one.path === path)
    if (found === undefined) throw new TypeError(`the document has no ${method} ${path}`)
    return found
  }

  return {
    operations,
    operation,
    async call(call) {
      const { responses } = operation(call)
      const reply = await fetch(url + (call.target ?? call.path), initOf({ key, ...call }))
      const { status, headers } = reply
      const text = await reply.text()
      const type = mediaTypeOf(headers)
      const about = `${call.method} ${call.target ?? call.path} → ${status} ${type}`
      const schema = responses[status]?.content[type]?.schema
      if (schema === undefined) throw new Error(`${about} is not documented: ${text.slice(0, 500)}`)
      const events = type === 'text/event-stream' ? readEvents(text) : []
      const value: unknown = type === 'application/json' ? JSON.parse(text) : null
      for (const { name, data } of type === 'application/json'
        ? [{ name: null, data: value }]
        : events) {
        const fault =
          data === '[DONE]' ? null : validate(name === 'error' ? ERROR_SCHEMA : schema, data)
        if (fault !== null)
          throw new Error(`${about} is not as documented: ${fault} ${text.slice(0, 2_000)}`)
      }
      return { status, headers, value, events }
    },
    allowsBody(call, body) {
      const [content] = Object.entries(operation(call).requestBody?.content ?? {})
      if (content === undefined) throw new TypeError(`${call.method} ${call.path} has no body`)
      const [type, { schema }] = content
      return (type === 'application/json' ? validate : validateTexts)(schema, body) === null
    },
    allowsParameter(call, { in: place, name }, text) {
      const found = operation(call).parameters?.find((one) => one.in === place && one.name === name)
      if (found === undefined)
        throw new TypeError(`${call.method} ${call.path} has no parameter ${name}`)
      return text === undefined ? !found.required : validateTexts(found.schema, text) === null
    },
    defaultOf(call, field) {
      const { parameters = [], requestBody } = operation(call)
      const [body] = Object.values(requestBody?.content ?? {})
      const name = String(body?.schema.$ref).replace('#/components/schemas/', '')
      const members = (document.components.schemas[name]?.properties ?? {}) as Readonly<
        Record<string, Schema>
      >
      return (members[field] ?? parameters.find((one) => one.name === field)?.schema)?.default
    },
  }
}

type ServedDocument = {
  readonly paths: Readonly<
    Record<string, Readonly<Record<string, Omit<ServedOperation, 'method' | 'path'>>>>
  >
  readonly components: { readonly schemas: Readonly<Record<string, Schema>> }
}

/** Data of `event: error` (interface, part 6). */
const ERROR_SCHEMA = { $ref: '#/components/schemas/Error' }

/**
 * Both give what is wrong with a value, or null. `validateTexts` takes texts for the numbers and
 * files that they stand for.
 */
function createValidators(document: ServedDocument) {
  const ajv = new Ajv2020({ strict: false, validateFormats: false })
  ajv.addSchema({ $id: 'document', ...document })
  const compiled = new Map<string, ValidateFunction>()

  function validate(schema: Schema, value: unknown): string | null {
    const key = JSON.stringify(schema)
    const check =
      compiled.get(key) ??
      ajv.compile(JSON.parse(key.replaceAll('"#/', '"document#/')) as AnySchema)
    compiled.set(key, check)
    return check(value) ? null : ajv.errorsText(check.errors)
  }

  return {
    validate,
    validateTexts: (schema: Schema, value: unknown) =>
      validate(schema, JSON.parse(JSON.stringify(value, (_, member) => meaningOf(member)))),
  }
}

function meaningOf(member: unknown): unknown {
  if (member instanceof Uint8Array) return 'bytes'
  return typeof member === 'string' && /^-?\d+(\.\d+)?$/.test(member) ? Number(member) : member
}

function mediaTypeOf(headers: Headers): string {
  return headers.get('content-type')?.split(';', 1)[0] ?? ''
}

function initOf({ method, body, headers, key = null }: ApiCall): RequestInit {
  const isRaw = body instanceof FormData || body instanceof Uint8Array
  return {
    method,
    headers: {
      ...(key === null ? {} : { authorization: `Bearer ${key}` }),
      ...(body === undefined || isRaw ? {} : { 'content-type': 'application/json' }),
      ...headers,
    },
    ...(body === undefined ? {} : { body: isRaw ? (body as FormData) : JSON.stringify(body) }),
    signal: AbortSignal.timeout(REPLY_TIMEOUT_MS),
  }
}

/** Events of a stream whose data are one line each; comments are none. */
function readEvents(text: string): readonly StreamEvent[] {
  return text
    .split('\n\n')
    .map((block) => block.split('\n'))
    .flatMap((lines) => {
      const data = fieldOf(lines, 'data')
      if (data === null) return []
      return [{ name: fieldOf(lines, 'event'), data: data === '[DONE]' ? data : JSON.parse(data) }]
    })
}

function fieldOf(lines: readonly string[], name: string): string | null {
  return lines.find((line) => line.startsWith(`${name}: `))?.slice(name.length + 2) ?? null
}
