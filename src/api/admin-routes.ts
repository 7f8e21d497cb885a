import { z } from 'zod'
import { ADMIN_ROUTE, type AdminBy, adminDone, unfitFor } from './admin-calls.ts'
import { CONTROL_OPERATIONS, type GatewayOperations } from './control-operations.ts'
import { ApiError } from './errors.ts'
import { defineRoute, type Route } from './route.ts'

const enclave = z.looseObject({
  url: z.string().max(200).describe('`unix:/path`, as the list of enclaves names it'),
})

const { enclaves, relayers } = CONTROL_OPERATIONS

/**
 * Routes of the operator's, for keys with the scope `admin`: the operations of the command line on
 * what this gateway alone has, over HTTP.
 */
export function adminRoutes(
  by: AdminBy<Pick<GatewayOperations, 'enclaves' | 'relayers'>>,
): readonly Route[] {
  const { admission, bytesMax, ...admin } = ADMIN_ROUTE
  const reply = adminDone
  const url = { example: { url: 'unix:/run/enclave.sock' }, bytesMax, schema: enclave }
  return [
    defineRoute({
      ...admin,
      method: 'GET',
      path: '/v1/admin/enclaves',
      summary: 'The enclaves of this gateway, and their states',
      reply: { name: 'AdminEnclaves', schema: z.strictObject({ enclaves: enclaves.list.result }) },
      handler: async (call) => ({ enclaves: await by(call).enclaves.list() }),
    }),
    defineRoute({
      ...admin,
      method: 'POST',
      path: '/v1/admin/enclaves',
      summary: 'Check an enclave and take it into use, until this gateway stops',
      body: { name: 'AdminAddEnclave', ...url },
      reply,
      errors: ['limit_reached'],
      admission,
      async handler({ body, ...call }) {
        const outcome = await by(call).enclaves.add(body.url)
        if (outcome === 'limit') throw new ApiError('limit_reached', 'There are too many enclaves')
        return settled(outcome, 'body')
      },
    }),
    defineRoute({
      ...admin,
      method: 'PUT',
      path: '/v1/admin/enclaves',
      summary: 'Drain an enclave: it gets no new calls; the list shows when it is drained',
      body: { name: 'AdminDrainEnclave', ...url },
      reply,
      errors: ['not_found'],
      admission,
      handler: async ({ body, ...call }) =>
        settled(await by(call).enclaves.drain(body.url), 'body'),
    }),
    defineRoute({
      ...admin,
      method: 'DELETE',
      path: '/v1/admin/enclaves',
      summary: 'Remove an enclave that is not in use',
      query: enclave,
      reply,
      errors: ['not_found', 'enclave_in_use'],
      handler: async ({ query, ...call }) =>
        settled(await by(call).enclaves.remove(query.url), 'query'),
    }),
    defineRoute({
      ...admin,
      method: 'GET',
      path: '/v1/admin/relayers',
      summary: 'The accounts that pay or paid for anchors, and their anchors that wait',
      reply: { name: 'AdminRelayers', schema: z.strictObject({ relayers: relayers.list.result }) },
      handler: async (call) => ({ relayers: await by(call).relayers.list() }),
    }),
  ]
}

/** Throws the error that the caller receives for any outcome but `done`. */
function settled(outcome: 'done' | 'invalid' | 'unknown' | 'in_use', place: 'body' | 'query') {
  if (outcome === 'invalid')
    throw unfitFor(place, 'url', 'Input should be unix: and an absolute path')
  if (outcome === 'unknown') throw new ApiError('not_found', 'There is no such enclave')
  if (outcome === 'in_use')
    throw new ApiError('enclave_in_use', 'The enclave is in use: drain it first')
  return { outcome }
}
