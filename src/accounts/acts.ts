import { z } from 'zod'
import { createAdmission } from '../api/admission.ts'
import { actorOf } from '../api/authenticate.ts'
import type { Operator } from '../api/context.ts'
import type { ErrorCode } from '../api/errors.ts'
import { defineRoute, type Route } from '../api/route.ts'
import { validate } from '../api/validation.ts'
import type { Database } from '../storage/database.ts'
import type { AdminLog, NewAct } from './admin-log-store.ts'

/** Maximum size of an act's body, which contains some names and a reason. */
export const ACT_BODY_BYTES_MAX = 4096

/** Calls with administrators' keys and the operator's calls have separate limits. */
const admissions = {
  admin: createAdmission({ callsMax: 16, bytesMax: 1024 * 1024 }),
  operator: createAdmission({ callsMax: 64, bytesMax: 1024 * 1024 }),
}

export const actDone = {
  name: 'AdminDone',
  schema: z.strictObject({ outcome: z.literal('done') }),
}

export type ActPlace = {
  readonly database: Pick<Database, 'queries'>
  readonly adminLog: AdminLog
}

/** `name` is the schema's name in the API documentation. */
type Form<Output, Input = unknown> = {
  readonly schema: z.ZodType<Output, Input>
  readonly name?: string
}

type ActDefinition<Over, Order, Given, Outcome, Reply> = {
  readonly method: 'GET' | 'POST' | 'PUT' | 'DELETE'
  readonly path: string
  readonly summary: string
  /**
   * `admin`: a key with this scope. `operator`: only the operator, on the control socket or in the
   * database.
   */
  readonly scope: 'admin' | 'operator'
  /** The schema of a GET or DELETE call's query. */
  readonly query?: z.ZodType<Order, Given>
  /** The schema of a POST or PUT call's body. */
  readonly body?: Form<Order, Given> & { readonly example?: object }
  readonly reply: Form<Reply>
  readonly errors?: readonly ErrorCode[]
  /** `over.database` is the transaction that records the act, unless `isOutside` is true. */
  readonly run: (order: Order, over: Over) => Promise<Outcome>
  /**
   * The records of the act: names and ids, never a secret. A text is the reason why the act is not
   * recorded.
   */
  readonly trail:
    | 'changes nothing'
    | 'continues what was recorded'
    | ((order: Order, outcome: Outcome) => readonly NewAct[])
  /**
   * True if the act does not use the recording transaction. The record is then written after the
   * act.
   */
  readonly isOutside?: true
  /** Throws the error that the caller receives. */
  readonly answer: (outcome: Outcome, order: Order) => Reply
}

/** An act of administrators, declared once for HTTP, the control socket and the database. */
export type Act<Over, Given, Reply extends object> = {
  readonly method: 'GET' | 'POST' | 'PUT' | 'DELETE'
  readonly path: string
  readonly reply: z.ZodType<Reply>
  /** Runs and records the act without HTTP. Throws ApiError and ValidationError. */
  readonly perform: (given: Given, over: Over & ActPlace, operator: Operator) => Promise<Reply>
  readonly toRoute: (over: Over & ActPlace) => Route
}

/** Defines an act. An act on the database and the act's record are written in one transaction. */
export function defineAct<Over, Order, Given, Outcome, Reply extends object>(
  definition: ActDefinition<Over, Order, Given, Outcome, Reply>,
): Act<Over, Given, Reply> {
  const { method, path, summary, scope, query, body, reply, errors = [] } = definition
  const { run, trail, answer, isOutside = false } = definition

  async function record(order: Order, over: Over & ActPlace, operator: Operator): Promise<Reply> {
    if (typeof trail === 'string') return answer(await run(order, over), order)
    if (isOutside) {
      const outcome = await run(order, over)
      for (const act of trail(order, outcome)) await over.adminLog.append(operator, act)
      return answer(outcome, order)
    }
    const outcome = await over.adminLog.record(
      operator,
      (database) => run(order, { ...over, database }),
      (result) => trail(order, result),
    )
    return answer(outcome, order)
  }

  const place = body === undefined ? 'query' : 'body'
  const form = body?.schema ?? query
  const declared = { method, path, summary, scope, errors, tag: 'Administration' } as const
  return {
    method,
    path,
    reply: reply.schema,
    perform: async (given, over, operator) => record(validate(place, form, given), over, operator),
    toRoute: (over) =>
      defineRoute<unknown, Order, unknown, Order>({
        ...declared,
        reply: { name: path, ...reply },
        ...(method === 'GET' ? {} : { admission: admissions[scope] }),
        ...(query === undefined ? {} : { query }),
        ...(body === undefined
          ? {}
          : { body: { name: path, example: {}, bytesMax: ACT_BODY_BYTES_MAX, ...body } }),
        handler: (call) => record(call[place], over, actorOf(call.context.state)),
      }),
  }
}

export function actRoutes<Over>(
  acts: Readonly<Record<string, Act<Over, never, object>>>,
  over: Over & ActPlace,
): readonly Route[] {
  return Object.values(acts).map((act) => act.toRoute(over))
}
