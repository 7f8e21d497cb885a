import { Ajv2020, type ValidateFunction } from 'ajv/dist/2020.js'
import { NODE_SOCKET_PATH } from '../../../src/nodes/hub/node-socket.ts'
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

  function checkRefusal({ status, headers, body }: RawReply, path: string): void {
    if (headers.get('content-type') !== 'application/json; charset=utf-8')
      throw new Error(`expected JSON, got ${headers.get('content-type')}`)
    const value = JSON.parse(body.toString()) as {
      readonly detail?: unknown
      readonly error?: { readonly code: string; readonly status_code?: number }
    }
    const hasFaults = value.detail !== undefined
    check(hasFaults ? FAULTS : ERROR, value)
    if (hasFaults ? status !== 422 : value.error?.status_code !== status)
      throw new Error('expected the envelope of this status')
    if (status >= 500 && TRUE_FAULTS[value.error?.code ?? '']?.test(path) !== true)
      throw new Error('expected no fault of the service')
    if (INTERNALS.test(body.toString())) throw new Error('expected nothing of what is inside')
  }

  function checkSuccess({ headers, body }: RawReply, { responses }: ApiOperation): void {
    const [type = ''] = (headers.get('content-type') ?? '').split(';', 1)
    const schema = responses[200]?.content[type]?.schema
    if (schema === undefined) throw new Error(`expected a documented type, got ${type}`)
    if (type === 'application/json') check(String(schema.$ref), JSON.parse(body.toString()))
    else if (type === 'text/event-stream') checkStream(body.toString(), String(schema.$ref))
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
      if (request.method !== 'HEAD') checkRefusal(reply, operation.path)
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

const ERROR = '#/components/schemas/Error'
const FAULTS = '#/components/schemas/ValidationFaults'
