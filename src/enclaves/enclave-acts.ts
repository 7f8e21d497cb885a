import { z } from 'zod'
import { actDone, defineAct } from '../accounts/acts.ts'
import { ApiError, unfitFor } from '../api/errors.ts'
import { parseSocketUrl } from '../runtime/fields.ts'
import type { EnclavePool } from './enclave-pool.ts'

const named = z.looseObject({
  url: z.string().max(200).describe('`unix:/path`, as the list of enclaves names it'),
})

const enclaveDescription = z.object({
  /** `unix:/path`. It is also the enclave's name. */
  url: z.string(),
  /** This member and the next members are the same as in EndpointDescription. */
  state: z.string(),
  notary: z.string().nullable(),
  calls: z.int(),
  committed: z.int().nullable(),
  fault: z.string(),
})
export type EnclaveDescription = Readonly<z.output<typeof enclaveDescription>>

type Place = { readonly enclaves: Pick<EnclavePool, 'list' | 'add' | 'drain' | 'remove'> }

const changes = { scope: 'admin', isOutside: true, reply: actDone } as const
const body = { schema: named, example: { url: 'unix:/run/enclave.sock' } }

/** Changes last until the gateway stops. At the next start, ENCLAVE_URL names the enclaves. */
export const enclaveActs = {
  list: defineAct({
    method: 'GET',
    path: '/v1/admin/enclaves',
    summary: 'The enclaves of this gateway, and their states',
    scope: 'admin',
    reply: {
      name: 'AdminEnclaves',
      schema: z.strictObject({ enclaves: z.array(enclaveDescription).readonly() }),
    },
    run: async (_, { enclaves }: Place) => enclaves.list(),
    trail: 'changes nothing',
    answer: (enclaves) => ({
      enclaves: enclaves.map(({ socketPath, ...rest }) => ({ url: `unix:${socketPath}`, ...rest })),
    }),
  }),
  /** Also puts a drained enclave into use. */
  add: defineAct({
    ...changes,
    method: 'POST',
    path: '/v1/admin/enclaves',
    summary: 'Check an enclave and take it into use, until this gateway stops',
    body: { name: 'AdminAddEnclave', ...body },
    errors: ['limit_reached', 'one_of_many_processes'],
    run: ({ url }, { enclaves }: Place) => at(url, (path) => enclaves.add(path)),
    trail: ({ url }, outcome) => [{ kind: 'enclave.add', target: url, outcome }],
    answer(outcome) {
      if (outcome === 'limit') throw new ApiError('limit_reached', 'There are too many enclaves')
      return settle(outcome, 'body')
    },
  }),
  /** The reply does not wait until the enclave is drained. */
  drain: defineAct({
    ...changes,
    method: 'PUT',
    path: '/v1/admin/enclaves',
    summary: 'Drain an enclave: it gets no new calls; the list shows when it is drained',
    body: { name: 'AdminDrainEnclave', ...body },
    errors: ['not_found', 'one_of_many_processes'],
    run: ({ url }, { enclaves }: Place) => at(url, (path) => enclaves.drain(path)),
    trail: ({ url }, outcome) => [{ kind: 'enclave.drain', target: url, outcome }],
    answer: (outcome) => settle(outcome, 'body'),
  }),
  remove: defineAct({
    ...changes,
    method: 'DELETE',
    path: '/v1/admin/enclaves',
    summary: 'Remove an enclave that is not in use',
    query: named,
    errors: ['not_found', 'enclave_in_use', 'one_of_many_processes'],
    run: ({ url }, { enclaves }: Place) => at(url, (path) => enclaves.remove(path)),
    trail: ({ url }, outcome) => [{ kind: 'enclave.remove', target: url, outcome }],
    answer: (outcome) => settle(outcome, 'query'),
  }),
}

async function at<Outcome>(
  url: string,
  run: (socketPath: string) => Outcome | Promise<Outcome>,
): Promise<Outcome | 'invalid'> {
  const socketPath = parseSocketUrl(url)
  return socketPath === null ? 'invalid' : run(socketPath)
}

/** Throws the caller's error for any outcome except `done`. */
function settle(outcome: 'done' | 'invalid' | 'unknown' | 'in_use', place: 'body' | 'query') {
  if (outcome === 'invalid')
    throw unfitFor(place, 'url', 'Input should be unix: and an absolute path')
  if (outcome === 'unknown') throw new ApiError('not_found', 'There is no such enclave')
  if (outcome === 'in_use')
    throw new ApiError('enclave_in_use', 'The enclave is in use: drain it first')
  return { outcome }
}
