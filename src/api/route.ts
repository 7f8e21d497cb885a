import { Readable } from 'node:stream'
import type { z } from 'zod'
import type { Json } from '#attestation/json/value.ts'
import {
  type Admission,
  type ChargedSlot,
  createAdmission,
  type MemoryBudget,
  type Slot,
} from './admission.ts'
import { callerOf } from './authenticate.ts'
import type { CallSignals } from './call-signals.ts'
import { clientGroupOf } from './client-address.ts'
import { type Caller, type RouteContext, type Scope, sendJsonText } from './context.ts'
import type { ErrorCode } from './errors.ts'
import { type EventStreamOptions, type EventWriter, streamEvents } from './event-stream.ts'
import type { FaceChoice, StreamSoFar } from './faces.ts'
import { type FormPart, readForm } from './form-body.ts'
import type { LeastRate } from './least-rate.ts'
import { readJsonBody, weighValues } from './read-body.ts'
import { parseJsonBody, validate } from './validation.ts'

/** The name is for the OpenAPI document. */
export type NamedSchema<Output = unknown> = {
  readonly name: string
  readonly schema: z.ZodType<Output>
}

type Declaration<Params, Query, Headers, Body> = {
  readonly method: 'GET' | 'POST' | 'PUT' | 'DELETE'
  /** The router's pattern, such as `/v1/log/:notary`. A route for GET also answers HEAD. */
  readonly path: string
  readonly tag: string
  readonly summary: string
  readonly description?: string
  /**
   * The scope that the caller's key must have. `any`: any valid key. `public`: no key is needed.
   * `operator`: served only on the control socket.
   */
  readonly scope: Scope | 'any' | 'public' | 'operator'
  /** On a public route: true if callers with a valid key are treated differently. */
  readonly knowsKeys?: true
  /** Default OPENAI_FACE. */
  readonly face?: FaceChoice
  /** The members of these objects are the parameters. Header names are in lower case. */
  readonly params?: z.ZodType<Params>
  readonly query?: z.ZodType<Query>
  readonly headers?: z.ZodType<Headers>
  readonly body?: NamedSchema<Body> & {
    readonly bytesMax: number
    readonly example: object
    /** True if the body is passed on: integers of any length keep their digits. */
    readonly keepsDigits?: true
  }
  /** `parse` checks the form. The schema only describes it. `example` leaves out the files. */
  readonly form?: NamedSchema & {
    readonly bytesMax: number
    readonly example: object
    readonly parse: (parts: readonly FormPart[]) => Body
  }
  /** `types`: content types, if the reply is not JSON. */
  readonly reply: NamedSchema & { readonly types?: readonly string[] }
  /** Data of the events that the route sends when `stream` is true. */
  readonly events?: NamedSchema
  /** The route's own error codes. The codes of keys, scopes, bodies and answers are added. */
  readonly errors?: readonly ErrorCode[]
  /** For the documentation. Statuses of `provider_refused` in addition to REPEATED_STATUSES. */
  readonly providerStatuses?: readonly number[]
}

type RouteDefinition<Params, Query, Headers, Body> = Declaration<Params, Query, Headers, Body> & {
  /** Routes with the same admission share its limits. Required for a route with a body. */
  readonly admission?: Admission
  /**
   * True if programs call the route all day. A call that succeeds or finds nothing is then logged
   * at debug level.
   */
  readonly isRoutine?: boolean
  /**
   * True if a call is ended when its caller leaves or the process stops. The process waits until
   * these calls have ended.
   */
  readonly isAbortable?: boolean
  /** The handler of the calls for which `isFor` returns true. It reads the body itself. */
  readonly raw?: {
    readonly isFor: (context: RouteContext) => boolean
    readonly handler: (call: RawCall) => Promise<void>
  }
  /**
   * Returns the JSON to answer, as a value or text. Undefined if the handler has answered itself.
   */
  readonly handler: (
    call: RouteCall<Params, Query, Headers, Body>,
  ) => Promise<object | string | undefined>
}

/** `params`, `query`, `headers` and `body` are the values that the route's schemas returned. */
export type RouteCall<Params = unknown, Query = unknown, Headers = unknown, Body = unknown> = {
  readonly context: RouteContext
  readonly params: Params
  readonly query: Query
  readonly headers: Headers
  readonly body: Body
  /** The whole body, members in their original order. Null without a body. */
  readonly json: Json
  /** The exact bytes of a JSON body. */
  readonly bytes: Buffer
  /** Released when the answer was sent. */
  readonly slot: ChargedSlot
  readonly abort: AbortController
  /** Aborted when the process stops, not when the caller leaves. */
  readonly stop: AbortController
  /** Throws TypeError on a public route. */
  caller(): Caller
  /** See streamEvents. */
  stream(
    write: (writer: EventWriter) => Promise<unknown>,
    isEvent?: (error: unknown) => boolean,
    soFar?: () => StreamSoFar | null,
  ): Promise<undefined>
}

/** A call whose handler reads the body itself. */
export type RawCall = {
  readonly context: RouteContext
  readonly slot: Slot
  readonly rate: LeastRate
  readonly abort: AbortController
}

export type RouteServer = EventStreamOptions & {
  readonly signals: CallSignals
  readonly memory: MemoryBudget
  readonly rate: LeastRate
}

export type Route = Declaration<unknown, unknown, unknown, unknown> & {
  /** Call this after the key was checked. Throws the error that the caller receives. */
  serve(context: RouteContext, server: RouteServer): Promise<void>
}

/**
 * Declares a route once: the router serves it and the OpenAPI document describes it, with the same
 * schemas. A call is first admitted. Then its parameters, its body and its headers are checked, in
 * this order.
 */
export function defineRoute<Params, Query, Headers, Body>(
  definition: RouteDefinition<Params, Query, Headers, Body>,
): Route {
  const { handler, raw, admission = UNBOUNDED, ...more } = definition
  const { isAbortable = false, isRoutine = false, ...declared } = more
  const { body, form } = declared
  if ((body ?? form) !== undefined && admission === UNBOUNDED)
    throw new TypeError(`expected an admission for the bodies of ${declared.path}`)

  async function answer(
    context: RouteContext,
    server: RouteServer,
    held: Pick<RouteCall, 'slot' | 'abort' | 'stop'>,
  ): Promise<void> {
    const params = validate('path', declared.params, context.params)
    const query = validate('query', declared.query, context.query)
    const content = await readContent(context, server, held.slot)
    held.slot.enter()
    const headers = validate('header', declared.headers, context.headers)
    const given = await handler({
      context,
      params,
      query,
      headers,
      ...content,
      ...held,
      caller: () => callerOf(context.state),
      stream: async (...events) => {
        await streamEvents(context, server, ...events)
        return undefined
      },
    })
    if (given !== undefined)
      sendJsonText(context, typeof given === 'string' ? given : JSON.stringify(given))
  }

  async function readContent(
    context: RouteContext,
    { rate }: RouteServer,
    slot: Slot,
  ): Promise<Pick<RouteCall<Params, Query, Headers, Body>, 'body' | 'json' | 'bytes'>> {
    if (form !== undefined) {
      const parts = await readForm(context, { slot, rate, bytesMax: form.bytesMax })
      return { body: form.parse(parts), json: null, bytes: NO_BYTES }
    }
    if (body === undefined) return { body: undefined as Body, json: null, bytes: NO_BYTES }
    const bytes = await readJsonBody(context.req, context.res, {
      slot,
      rate,
      bytesMax: body.bytesMax,
    })
    slot.reserve(weighValues(bytes))
    const json = parseJsonBody(bytes, body.keepsDigits)
    return { body: validate('body', body.schema, json), json, bytes }
  }

  return {
    ...declared,
    async serve(context, server) {
      context.state.isRoutine = isRoutine
      const { caller, client } = context.state
      const owner = caller?.accountId ?? clientGroupOf(client)
      const slot = server.memory.charge(admission, owner, caller !== null)
      const { abort, stop, done } = isAbortable ? server.signals.open(context.res) : neverAborted()
      try {
        if (raw?.isFor(context)) {
          slot.enter()
          await raw.handler({ context, slot, rate: server.rate, abort })
        } else await answer(context, server, { slot, abort, stop })
        countAnswer(context, slot)
      } finally {
        done()
        // An answer keeps its memory until it was sent: its reader may be slow. A text that was
        // only read keeps no place, so that slow readers do not take the few places of public
        // routes.
        if (context.res.closed) {
          slot.release()
          dropStream(context)
        } else {
          if (context.method !== 'POST' && typeof context.body === 'string') slot.leave()
          context.res.once('close', slot.release)
        }
      }
    },
  }
}

/**
 * Closes the file or the connection of an answer whose caller has left. Koa would not notice that
 * the connection has closed if the answer waits behind another answer.
 */
function dropStream(context: RouteContext): void {
  if (!(context.body instanceof Readable)) return
  context.respond = false
  context.body.destroy()
}

/** Counts the memory of an answer. Throws ApiError `overloaded`. */
function countAnswer({ method, body }: RouteContext, slot: ChargedSlot): void {
  try {
    slot.answer(bytesOf(body))
  } catch (error) {
    // The work of a POST is done, and may be paid, so its answer is sent.
    if (method !== 'POST') throw error
  }
}

/** A stream holds few bytes: it is read as fast as its reader takes them. */
function bytesOf(body: unknown): number {
  return typeof body === 'string' || Buffer.isBuffer(body) ? Buffer.byteLength(body) : 0
}

const NO_BYTES = Buffer.alloc(0)
const UNBOUNDED = createAdmission({ callsMax: Number.POSITIVE_INFINITY, bytesMax: 0 })

function neverAborted() {
  return { abort: new AbortController(), stop: new AbortController(), done: () => undefined }
}
