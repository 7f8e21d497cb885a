import { Ajv2020, type AnySchema, type ValidateFunction } from 'ajv/dist/2020.js'

type Schema = Readonly<Record<string, unknown>>
type Content = Readonly<Record<string, { readonly schema: Schema }>>

/** The part of a request that holds a parameter. */
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

/** One call; by default with the key, and without a body. */
export type ApiCall = OperationKey & {
  /** The path with the query, when it differs from the pattern. */
  readonly target?: string
  /** Sent as JSON; FormData and bytes as they are. */
  readonly body?: unknown
  /** In place of the key; null sends none. */
  readonly key?: string | null
  /** Beside the key and the content type, or in their place. */
  readonly headers?: Readonly<Record<string, string>>
}

/**
 * An event of a stream. `name` is null for an event without a name; `data` is JSON's value, or the
 * text `[DONE]`.
 */
export type StreamEvent = { readonly name: string | null; readonly data: unknown }

/** An answer that matches the documentation. */
export type ApiReply = {
  readonly status: number
  readonly headers: Headers
  /** JSON of the answer; null for a stream and for an image. */
  readonly value: unknown
  /** The events of a stream. */
  readonly events: readonly StreamEvent[]
}

/** A service whose answers are checked against the OpenAPI document that it serves. */
export type DocumentedApi = {
  readonly operations: readonly ServedOperation[]
  /** The document's entry for an operation. Throws when there is no entry. */
  operation(key: OperationKey): ServedOperation
  /**
   * Makes a call. Throws when it takes longer than REPLY_TIMEOUT_MS, or when its status or answer
   * differs from the document.
   */
  call(call: ApiCall): Promise<ApiReply>
  /**
   * Whether the document allows a body: JSON, or the fields of a form (texts, and bytes for files).
   */
  allowsBody(key: OperationKey, body: unknown): boolean
  /** Whether the document allows the value of a parameter; undefined leaves it out. */
  allowsParameter(
    key: OperationKey,
    parameter: { readonly in: ParameterPlace; readonly name: string },
    text: unknown,
  ): boolean
  /**
   * The document's default for a member of the body, or a parameter; undefined when it has no
   * default.
   */
  defaultOf(key: OperationKey, field: string): unknown
}

/** A healthy service always answers sooner. */
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
 * Both give what is wrong with a value, or null. `validateTexts` accepts texts in place of numbers
 * and files.
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

/** Events of a stream whose data have one line each; comments are left out. */
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
