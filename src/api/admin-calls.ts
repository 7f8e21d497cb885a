import type { IncomingMessage } from 'node:http'
import { z } from 'zod'
import { createAdmission } from './admission.ts'
import { isName, NAME_LENGTH_MAX, type OperatorOf } from './control-operations.ts'
import { ValidationError } from './errors.ts'
import type { RouteCall } from './route.ts'
import { described, faultIssue } from './schemas.ts'

// What the routes of keys with the scope `admin` share.

/** Calls at once that change something, and the bytes of their bodies together. */
const ADMIN_CALLS_MAX = 16
const ADMIN_CALLS_BYTES_MAX = 1024 * 1024

/** What all of them declare. A body holds some names. */
export const ADMIN_ROUTE = {
  tag: 'Administration',
  scope: 'admin',
  admission: createAdmission({ callsMax: ADMIN_CALLS_MAX, bytesMax: ADMIN_CALLS_BYTES_MAX }),
  bytesMax: 4096,
} as const

/** Reply of a route that did what it was asked for. */
export const adminDone = {
  name: 'AdminDone',
  schema: z.strictObject({ outcome: z.literal('done') }),
}

/** Name of an account or a tier. */
export const adminName = described(
  z.string().check(({ value, issues }) => {
    if (isName(value)) return
    const expected = `1 to ${NAME_LENGTH_MAX} characters without control characters`
    issues.push(faultIssue([], 'value_error', `Input should be ${expected}`))
  }),
  () => ({ type: 'string', minLength: 1, maxLength: NAME_LENGTH_MAX }),
)

/** Gives the operations in the name of the key that calls. */
export type AdminBy<Operations> = (call: Pick<RouteCall, 'caller' | 'context'>) => Operations

/** Operations by the keys of calls; `clientOf` gives the address that a call came from. */
export function operateBy<Operations>(
  operationsOf: OperatorOf<Operations>,
  clientOf: (request: IncomingMessage) => string | null,
): AdminBy<Operations> {
  return ({ caller, context }) => {
    const { keyId, accountId } = caller()
    return operationsOf({
      who: `key ${keyId}`,
      accountId,
      from: clientOf(context.req) ?? 'unknown',
    })
  }
}

/** The error of a member that its schema takes, and the gateway cannot. */
export function unfitFor(place: 'body' | 'query', member: string, msg: string): ValidationError {
  return new ValidationError([{ loc: [place, member], msg, type: 'value_error' }])
}
