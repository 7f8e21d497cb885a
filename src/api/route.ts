import type { z } from 'zod'
import type { Json } from '../../attestation/json/value.ts'
import { type Admission, createAdmission, type MemoryBudget, type Slot } from './admission.ts'
import { callerOf } from './authenticate.ts'
import type { CallSignals } from './call-signals.ts'
import { clientGroupOf } from './client-address.ts'
import { type Caller, type RouteContext, type Scope, sendJsonText } from './context.ts'
import type { ErrorCode } from './errors.ts'
import { type EventStreamOptions, type EventWriter, streamEvents } from './event-stream.ts'
import { type FormPart, readForm } from './form-body.ts'
import type { LeastRate } from './least-rate.ts'
import { readJsonBody, weighValues } from './read-body.ts'
import { parseJsonBody, validate } from './validation.ts'

/** A schema that has a name of its own in the OpenAPI document. */
export type NamedSchema<Output = unknown> = {
  readonly name: string
  readonly schema: z.ZodType<Output>
}

/** What a route is, as the router and the OpenAPI document have it. */
type Declaration<Params, Query, Headers, Body> = {
  readonly method: 'GET' | 'POST' | 'PUT' | 'DELETE'
  /** The router's pattern: `/v1/log/:notary`. A route to GET answers HEAD too. */
  readonly path: string
  readonly tag: string
  readonly summary: string
  readonly description?: string
  /** What the caller's key must be for; `any`: any valid key; `public`: no key is asked for. */
  readonly scope: Scope | 'any' | 'public'
  /** Of a public route: whether it treats callers with a valid key otherwise than others. */
  readonly knowsKeys?: true
  /** Schemas of objects whose members are the parameters; names of headers in lower case. */
  readonly params?: z.ZodType<Params>
  readonly query?: z.ZodType<Query>
  readonly headers?: z.ZodType<Headers>
  /** Body of JSON. */
  readonly body?: NamedSchema<Body> & {
    readonly bytesMax: number
    /** An example that passes, as its documentation shows it. */
    readonly example: object
  }
  /** Body that is a form: its schema describes it, `parse` checks it. */
  readonly form?: NamedSchema & {
    readonly bytesMax: number
    /** An example that passes, but for its files. */
    readonly example: object
    readonly parse: (parts: readonly FormPart[]) => Body
  }
  /** With the types of its content, when it is not JSON. */
  readonly reply: NamedSchema & { readonly types?: readonly string[] }
  /** Data of the events that it answers with when `stream` is true. */
  readonly events?: NamedSchema
  /**
   * Codes of this route's own errors, beside the errors that any route has with such a key and
   * body.
   */
  readonly errors?: readonly ErrorCode[]
}

type RouteDefinition<Params, Query, Headers, Body> = Declaration<Params, Query, Headers, Body> & {
  /** Limits the calls of all routes that it is given to. A route with a body has one. */
  readonly admission?: Admission
  /**
   * Whether machines call it all day: a call is then logged at debug level when it went well, and
   * when it found nothing.
   */
  readonly isRoutine?: boolean
  /**
   * Whether its calls end when their callers leave or the process stops, which waits for them until
   * then.
   */
  readonly isAbortable?: boolean
  /** Calls that another handler answers, which reads the body itself. */
  readonly raw?: {
    readonly isFor: (context: RouteContext) => boolean
    readonly handler: (call: RawCall) => Promise<void>
  }
  /**
   * Gives JSON: a value, or its text as it is to be sent; undefined when it has answered itself.
   */
  readonly handler: (
    call: RouteCall<Params, Query, Headers, Body>,
  ) => Promise<object | string | undefined>
}

/**
 * One call of a route. Its schemas have checked each member that they describe; the member is the
 * schema's result.
 */
export type RouteCall<Params = unknown, Query = unknown, Headers = unknown, Body = unknown> = {
  readonly context: RouteContext
  readonly params: Params
  readonly query: Query
  readonly headers: Headers
  readonly body: Body
  /**
   * The JSON value that the body was made of: with every member, in its place; null without one.
   */
  readonly json: Json
  /** Exact bytes of a body of JSON. */
  readonly bytes: Buffer
  /** What the call holds of the route's admission. */
  readonly slot: Slot
  readonly abort: AbortController
  /** Whose key it is. Throws TypeError on a public route. */
  caller(): Caller
  /** Answers with the events that `write` writes (streamEvents). */
  stream(
    write: (writer: EventWriter) => Promise<unknown>,
    isEvent?: (error: unknown) => boolean,
  ): Promise<undefined>
}

/** One call whose handler reads its body itself. */
export type RawCall = {
  readonly context: RouteContext
  readonly slot: Slot
  readonly rate: LeastRate
  readonly abort: AbortController
}

/** What the app gives its routes to serve calls with. */
export type RouteServer = EventStreamOptions & {
  readonly signals: CallSignals
  readonly memory: MemoryBudget
  /** Slowest that bodies may arrive. */
  readonly rate: LeastRate
}

/** A route, ready to serve. */
export type Route = Declaration<unknown, unknown, unknown, unknown> & {
  /** Answers a call whose key was checked. Throws the error that the caller is to receive. */
  serve(context: RouteContext, server: RouteServer): Promise<void>
}

/**
 * A route of a capability. It is declared here once: the router serves it, and the OpenAPI document
 * describes it, by the same schemas. A call is admitted, its parameters are checked, its body is
 * read and checked, then its headers are.
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
    held: { readonly slot: Slot; readonly abort: AbortController },
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
      stream: async (write, isEvent) => {
        await streamEvents(context, server, write, isEvent)
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
    // Without a schema the body is not read.
    if (body === undefined) return { body: undefined as Body, json: null, bytes: NO_BYTES }
    const bytes = await readJsonBody(context.req, context.res, {
      slot,
      rate,
      bytesMax: body.bytesMax,
    })
    slot.reserve(weighValues(bytes))
    const json = parseJsonBody(bytes)
    return { body: validate('body', body.schema, json), json, bytes }
  }

  return {
    ...declared,
    async serve(context, server) {
      context.state.isRoutine = isRoutine
      const { caller, client } = context.state
      const owner = caller?.accountId ?? clientGroupOf(client)
      const slot = server.memory.charge(admission, owner)
      const { abort, done } = isAbortable ? server.signals.open(context.res) : neverAborted()
      try {
        if (raw?.isFor(context)) {
          slot.enter()
          await raw.handler({ context, slot, rate: server.rate, abort })
        } else await answer(context, server, { slot, abort })
      } finally {
        done()
        slot.release()
      }
    },
  }
}

const NO_BYTES = Buffer.alloc(0)
const UNBOUNDED = createAdmission({ callsMax: Number.POSITIVE_INFINITY, bytesMax: 0 })

function neverAborted() {
  return { abort: new AbortController(), done: () => undefined }
}
