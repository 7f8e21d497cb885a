import { Ajv2020, type ValidateFunction } from 'ajv/dist/2020.js'
import { NODE_SOCKET_PATH } from '#src/nodes/hub/node-socket.ts'
import type { FuzzRequest } from './fuzz-request.ts'
import type { RawReply } from './raw-reply.ts'
import type { FuzzedOperation } from './request-arbitrary.ts'
import type { Schema } from './schema-arbitrary.ts'
import type { Parameter } from './target-arbitrary.ts'

type Content = Readonly<Record<string, { readonly schema: Schema }>>
type ApiOperation = {
  readonly parameters?: readonly Parameter[]
  readonly requestBody?: { readonly content: Content }
  readonly responses: Readonly<Record<string, { readonly content: Content }>>
}

/** An OpenAPI document of this service, with the members that are used here. */
export type ApiDocument = {
  readonly paths: Readonly<Record<string, Readonly<Record<string, ApiOperation>>>>
  readonly components: { readonly schemas: Readonly<Record<string, Schema>> }
}

/** Operations of the document, ready to be fuzzed. */
export function operationsOf({ paths, components }: ApiDocument): readonly FuzzedOperation[] {
  return Object.entries(paths).flatMap(([path, methods]) =>
    Object.entries(methods).map(([method, { parameters = [], requestBody }]) => {
      const [content] = Object.entries(requestBody?.content ?? {})
      const name = String(content?.[1].schema.$ref).split('/').at(-1) ?? ''
      return {
        method: method.toUpperCase(),
        path,
        parameters,
        body:
          content === undefined
            ? null
            : { type: content[0], schema: components.schemas[name] ?? {} },
      }
    }),
  )
}

/**
 * 5xx answers that are right for some requests, and where: methods that HTTP has and this service
 * does not have, and more than 10 nonces a second.
 */
const TRUE_FAULTS: Readonly<Record<string, RegExp>> = {
  not_implemented: /^/,
  overloaded: /^\/v1\/attestation$/,
}

/** Texts that no answer may contain: files, stacks, and words of the database. */
const INTERNALS =
  /node_modules|\.ts:\d|\bat async |kysely|pglite|syntax error at|invalid byte sequence|duplicate key value/i

/** Checks answers against the document: statuses, types, members, and the form of errors. */
export type ReplyCheck = (request: FuzzRequest, operation: FuzzedOperation, reply: RawReply) => void

/** Gives the check; it throws with a message when an answer is wrong. */
export function createReplyCheck(document: ApiDocument): ReplyCheck {
  const ajv = new Ajv2020({ strict: false, validateFormats: false })
  ajv.addSchema({ $id: 'document', ...document })
  const validators = new Map<string, ValidateFunction>()

  function check(schema: string, value: unknown): void {
    const validate = validators.get(schema) ?? ajv.compile({ $ref: `document${schema}` })
    validators.set(schema, validate)
    if (!validate(value)) throw new Error(`expected ${schema}: ${ajv.errorsText(validate.errors)}`)
  }

  function checkRefusal(
    { status, headers, body }: RawReply,
    { method, path }: Pick<FuzzedOperation, 'method' | 'path'>,
  ): void {
    if (headers.get('content-type') !== 'application/json; charset=utf-8')
      throw new Error(`expected JSON, got ${headers.get('content-type')}`)
    const value = JSON.parse(body.toString()) as {
      readonly detail?: unknown
      readonly error?: { readonly code: string; readonly status_code?: number }
    }
    const documented = document.paths[path]?.[method.toLowerCase()]
    // A request that is not HTTP is refused before its path is known.
    const isUnrouted = UNROUTED.includes(status) && value.error?.status_code !== undefined
    const own = isUnrouted ? ERROR : errorOf(path, documented)
    const form = value.detail === undefined ? own : FAULTS
    check(form, value)
    // Only this service's own form has the status.
    const hasStatus = form !== ERROR || value.error?.status_code === status
    if (form === FAULTS ? status !== 422 : !hasStatus)
      throw new Error('expected the envelope of this status')
    if (status >= 500 && TRUE_FAULTS[value.error?.code ?? '']?.test(path) !== true)
      throw new Error('expected no fault of the service')
    if (INTERNALS.test(body.toString())) throw new Error('expected nothing of what is inside')
  }

  function checkSuccess({ headers, body }: RawReply, { responses }: ApiOperation): void {
    const [type = ''] = (headers.get('content-type') ?? '').split(';', 1)
    const schema = responses[200]?.content[type]?.schema
    // A browser gets the page of this address.
    if (schema === undefined && type === 'text/html') return
    if (schema === undefined) throw new Error(`expected a documented type, got ${type}`)
    if (type === 'application/json') check(String(schema.$ref), JSON.parse(body.toString()))
    else if (type === 'text/event-stream') {
      const text = body.toString()
      if (NAMED_STREAMS.test(text)) checkNamedStream(text, String(schema.$ref))
      else checkStream(text, String(schema.$ref))
    }
  }

  /** A stream whose events have names, as their data say. */
  function checkNamedStream(text: string, schema: string): void {
    const blocks = text.split('\n\n').filter((block) => block !== '' && !block.startsWith(':'))
    for (const block of blocks) {
      const [, name, data] = /^event: ([a-z._]+)\ndata: (.*)$/.exec(block) ?? []
      if (name === undefined || data === undefined)
        throw new Error(`expected a named event, got ${JSON.stringify(block.slice(0, 200))}`)
      const value: unknown = JSON.parse(data)
      check(schema, value)
      if ((value as { readonly type?: unknown }).type !== name)
        throw new Error(`expected the type of an event to be its name, ${name}`)
    }
    if (!NAMED_ENDS.test(blocks.at(-1) ?? '')) throw new Error('expected a stream that ends')
  }

  function checkStream(text: string, schema: string): void {
    const blocks = text.split('\n\n').filter((block) => block !== '' && !block.startsWith(':'))
    for (const block of blocks) {
      if (block === 'data: [DONE]') continue
      const [, isError, data] = /^(event: error\n)?data: (.*)$/.exec(block) ?? []
      if (data === undefined)
        throw new Error(`expected an event, got ${JSON.stringify(block.slice(0, 200))}`)
      check(isError === undefined ? schema : ERROR, JSON.parse(data))
    }
    const last = blocks.at(-1)
    if (last !== 'data: [DONE]' && last?.startsWith('event: error') !== true)
      throw new Error('expected a stream that ends')
  }

  return (request, operation, reply) => {
    if (reply.status >= 400) {
      if (request.method !== 'HEAD') checkRefusal(reply, operation)
    } else if (request.method === operation.method && reply.status === 200) {
      const documented = document.paths[operation.path]?.[operation.method.toLowerCase()]
      if (documented !== undefined) checkSuccess(reply, documented)
    } else if (!isPlainSuccess(reply.status, operation.path)) {
      throw new Error(`expected a documented status, got ${reply.status}`)
    }
  }
}

/** Right answers that the document does not have: to HEAD and OPTIONS, and to a node that dials. */
function isPlainSuccess(status: number, path: string): boolean {
  return status === 200 || status === 204 || (status === 101 && path === NODE_SOCKET_PATH)
}

const NAMED_STREAMS = /^(?::[^\n]*\n\n)*event: (?!error\n)/
const NAMED_ENDS = /^event: (?:response\.(?:completed|incomplete|failed)|message_stop|error)\n/

/** The schema of the errors of an operation: that of its dialect, or this service's own. */
function errorOf(path: string, operation: ApiOperation | undefined): string {
  if (path.startsWith('/v1/verified/anthropic/')) return ANTHROPIC_ERROR
  const refusals = Object.entries(operation?.responses ?? {}).filter(([status]) => status >= '400')
  const schemas = refusals.map(([, { content }]) =>
    String(content['application/json']?.schema.$ref),
  )
  return schemas.find((schema) => DIALECT_ERRORS.includes(schema)) ?? ERROR
}

const UNROUTED = [400, 408, 413, 417, 431, 501, 505]
const ANTHROPIC_ERROR = '#/components/schemas/AnthropicError'
const DIALECT_ERRORS = [ANTHROPIC_ERROR, '#/components/schemas/ResponsesError']
const ERROR = '#/components/schemas/Error'
const FAULTS = '#/components/schemas/ValidationFaults'
