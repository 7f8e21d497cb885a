import { expect, it } from 'vitest'
import type { Scope } from '#src/api/context.ts'
import { AT_ONCE_MS } from '../../support/at-once.ts'
import { CHAT_REQUEST, getPath, outcomeOf, postChat, VERIFIED_PATH } from '../../support/calls.ts'
import { type TestGateway, useGateway } from '../../support/gateway.ts'
import { secretOf } from '../../support/key-secret.ts'
import { answerWhole } from '../../support/scripted-enclave.ts'

const KEYS_PATH = '/v1/dashboard/keys'

const gateway = await useGateway()
gateway.enclave.setScript(answerWhole({}))

type Caller = Pick<TestGateway, 'url' | 'key'>

async function makeCaller(scopes: readonly Scope[], expiresAt: number | null = null) {
  const accountName = `account ${crypto.randomUUID()}`
  const { text, key } = await gateway.keys.create({ accountName, name: 'first', scopes, expiresAt })
  return { url: gateway.url, key: text, id: key.id, accountId: key.accountId, accountName }
}

const send = ({ url, key }: Caller, method: string, path: string, body?: unknown) =>
  fetch(url + path, {
    method,
    headers: {
      authorization: `Bearer ${key}`,
      ...(body === undefined ? {} : { 'content-type': 'application/json' }),
    },
    ...(body === undefined ? {} : { body: JSON.stringify(body) }),
  })
const read = async (reply: Promise<Response>) =>
  (await (await reply).json()) as Readonly<Record<string, unknown>>
const listOf = async (caller: Caller, query = '') =>
  (await read(getPath(caller, KEYS_PATH + query))).keys as readonly Readonly<
    Record<string, unknown>
  >[]
const nowSeconds = () => Math.floor(Date.now() / 1000)

it('a key of a dashboard is made with a secret that is shown once, and works', async () => {
  const caller = await makeCaller(['inference', 'nodes', 'keys'])
  const made = await read(send(caller, 'POST', KEYS_PATH, { name: 'ci' }))
  expect(made).toEqual({
    id: expect.stringMatching(/^[a-z2-7]{16}$/),
    account_id: caller.accountId,
    account_name: caller.accountName,
    name: 'ci',
    scopes: ['inference', 'nodes'],
    created_by: caller.id,
    created_at: expect.any(Number),
    expires_at: null,
    revoked_at: null,
    last_used_at: null,
    key: expect.stringMatching(/^afd_/),
  })
  expect((await postChat({ ...caller, key: String(made.key) }, CHAT_REQUEST)).status).toBe(200)
  const list = await listOf(caller)
  expect(new Set(list.map(({ name }) => name))).toEqual(new Set(['first', 'ci']))
  expect(JSON.stringify(list)).not.toContain(secretOf(String(made.key)))
  expect(gateway.logLines.join('')).not.toContain(secretOf(String(made.key)))
})

it('a key is ended by its account, and stops at once', async () => {
  const caller = await makeCaller(['inference', 'keys'])
  const made = await read(send(caller, 'POST', KEYS_PATH, { name: 'short', scopes: ['inference'] }))
  const other = { ...caller, key: String(made.key) }
  expect((await getPath(other, VERIFIED_PATH)).status).toBe(200)
  const revoked = await read(send(caller, 'DELETE', `${KEYS_PATH}/${made.id}`))
  expect(revoked).toMatchObject({ id: made.id, revoked_at: expect.any(Number) })
  expect(revoked).not.toHaveProperty('key')
  await expect
    .poll(async () => outcomeOf(await getPath(other, VERIFIED_PATH)), { timeout: AT_ONCE_MS })
    .toEqual([401, 'invalid_credentials'])
})

it('keys of other accounts are out of sight', async () => {
  const scopes = ['inference', 'keys'] as const
  const [caller, other] = [await makeCaller(scopes), await makeCaller(scopes)]
  expect(await listOf(caller)).toHaveLength(1)
  expect(await outcomeOf(await send(caller, 'DELETE', `${KEYS_PATH}/${other.id}`))).toEqual([
    404,
    'not_found',
  ])
  expect(
    await outcomeOf(await getPath(caller, `${KEYS_PATH}?account_id=${other.accountId}`)),
  ).toEqual([403, 'insufficient_scope'])
  const body = { name: 'theirs', scopes: ['inference'], account_id: other.accountId }
  expect(await outcomeOf(await send(caller, 'POST', KEYS_PATH, body))).toEqual([
    403,
    'insufficient_scope',
  ])
  expect(await listOf(other)).toMatchObject([{ id: other.id, revoked_at: null }])
})

it('revocations that change nothing leave no entry in the administrative log', async () => {
  const [caller, other] = [await makeCaller(['inference', 'keys']), await makeCaller(['admin'])]
  const body = { name: 'short', scopes: ['inference'] }
  const { id } = await read(send(caller, 'POST', KEYS_PATH, body))
  const statuses: number[] = []
  const ids = [id, id, other.id, 'a'.repeat(16), 'x'.repeat(4_000), '%00']
  for (const target of ids)
    statuses.push((await send(caller, 'DELETE', `${KEYS_PATH}/${target}`)).status)
  expect(statuses).toEqual([200, 200, 404, 404, 404, 404])
  const repeated = await send(other, 'DELETE', `${KEYS_PATH}/${id}`)
  expect(repeated.status).toBe(200)
  const log = await read(getPath(other, '/v1/admin/log?kind=key.revoke'))
  const acts = log.acts as readonly { readonly who: string; readonly target: string }[]
  const own = acts.filter(({ who }) => [caller.id, other.id].some((key) => who.includes(key)))
  expect(own).toMatchObject([{ target: id, outcome: 'revoked' }])
})

it('an admin lists, makes and ends the keys of all accounts', async () => {
  const [admin, other] = [await makeCaller(['admin']), await makeCaller(['inference'])]
  const all = await listOf(admin)
  expect(all.map(({ id }) => id)).toEqual(expect.arrayContaining([admin.id, other.id]))
  expect(await listOf(admin, `?account_id=${other.accountId}`)).toMatchObject([{ id: other.id }])
  const body = { name: 'for them', scopes: ['history:all'], account_id: other.accountId }
  const made = await read(send(admin, 'POST', KEYS_PATH, body))
  expect(made).toMatchObject({ account_id: other.accountId, scopes: ['history:all'] })
  expect((await send(admin, 'DELETE', `${KEYS_PATH}/${other.id}`)).status).toBe(200)
  const nowhere = { name: 'x', account_id: crypto.randomUUID() }
  expect(await outcomeOf(await send(admin, 'POST', KEYS_PATH, nowhere))).toEqual([
    422,
    ['body.account_id'],
  ])
})

it('a key cannot do more, nor live longer, than the key that makes it', async () => {
  const caller = await makeCaller(['inference', 'keys'], nowSeconds() + 3600)
  for (const scopes of [['nodes'], ['admin'], ['inference', 'history:all']])
    expect(
      await outcomeOf(
        await send(caller, 'POST', KEYS_PATH, {
          name: 'x',
          scopes,
          expires_at: nowSeconds() + 60,
        }),
      ),
    ).toEqual([403, 'insufficient_scope'])
  for (const expires of [{}, { expires_at: null }, { expires_at: nowSeconds() + 7200 }])
    expect(
      await outcomeOf(
        await send(caller, 'POST', KEYS_PATH, { name: 'x', scopes: ['inference'], ...expires }),
      ),
    ).toEqual([422, ['body.expires_at']])
  const fit = { name: 'x', scopes: ['inference'], expires_at: nowSeconds() + 60 }
  expect((await send(caller, 'POST', KEYS_PATH, fit)).status).toBe(200)
})

it('a key is not ended by a key that can do less', async () => {
  const owner = await makeCaller(['inference', 'nodes', 'keys'])
  const made = await read(
    send(owner, 'POST', KEYS_PATH, { name: 'on a machine', scopes: ['nodes', 'keys'] }),
  )
  const machine = { ...owner, key: String(made.key) }
  expect(await outcomeOf(await send(machine, 'DELETE', `${KEYS_PATH}/${owner.id}`))).toEqual([
    403,
    'insufficient_scope',
  ])
  expect((await getPath(owner, KEYS_PATH)).status).toBe(200)
  expect((await send(machine, 'DELETE', `${KEYS_PATH}/${made.id}`)).status).toBe(200)
})

it.each([
  [{}, ['body.name']],
  [{ name: '' }, ['body.name']],
  [{ name: 'x'.repeat(101) }, ['body.name']],
  [{ name: 'a\u0000' }, ['body.name']],
  [{ name: 'x', scopes: [] }, ['body.scopes']],
  [{ name: 'x', scopes: 'inference' }, ['body.scopes']],
  [{ name: 'x', scopes: ['root'] }, ['body.scopes.0']],
  [{ name: 'x', scopes: ['nodes', 'nodes'] }, ['body.scopes']],
  [{ name: 'x', expires_at: 1.5 }, ['body.expires_at']],
  [{ name: 'x', expires_at: 5 }, ['body.expires_at']],
  [{ name: 'x', account_id: 'me' }, ['body.account_id']],
  [[], ['body']],
])('the body %j makes no key', async (body, locs) => {
  const caller = await makeCaller(['inference', 'nodes', 'keys'])
  expect(await outcomeOf(await send(caller, 'POST', KEYS_PATH, body))).toEqual([422, locs])
})

const make = (caller: Caller, body: object = {}) =>
  send(caller, 'POST', KEYS_PATH, { name: 'twin', scopes: ['inference'], ...body })
const asCaller = async (caller: Caller, reply: Promise<Response>) => {
  const made = await read(reply)
  return { ...caller, key: String(made.key), id: String(made.id) }
}

it('a key without the scope keys makes no key', async () => {
  const caller = await makeCaller(['inference', 'nodes', 'history:all'])
  expect(await outcomeOf(await make(caller))).toEqual([403, 'insufficient_scope'])
  expect(await listOf(caller)).toHaveLength(1)
})

it('a key without the scope keys sees and revokes no other key, and revokes itself', async () => {
  const owner = await makeCaller(['inference', 'nodes', 'keys'])
  const [first, second] = [await asCaller(owner, make(owner)), await asCaller(owner, make(owner))]
  expect(await listOf(first)).toMatchObject([{ id: first.id }])
  for (const id of [second.id, 'a'.repeat(16)])
    expect(await outcomeOf(await send(first, 'DELETE', `${KEYS_PATH}/${id}`))).toEqual([
      403,
      'insufficient_scope',
    ])
  expect((await postChat(second, CHAT_REQUEST)).status).toBe(200)
  expect((await send(first, 'DELETE', `${KEYS_PATH}/${first.id}`)).status).toBe(200)
})

it('a key without the scope inference does not see the budget of its account', async () => {
  const [owner, admin] = [await makeCaller(['inference', 'keys']), await makeCaller(['admin'])]
  const machine = await gateway.keys.create({ ...owner, name: 'machine', scopes: ['nodes'] })
  const of = { what: 'requests', per: 'day', bound: 5 }
  for (const whose of [{ account: owner.accountName }, { key: machine.key.id }])
    expect((await send(admin, 'PUT', '/v1/admin/budgets', { ...whose, ...of })).status).toBe(200)
  const me = (key: string) => read(getPath({ ...owner, key }, '/v1/dashboard/me'))
  expect(await me(owner.key)).toMatchObject({ budgets: [{ key_id: null }] })
  expect(await me(machine.text)).toMatchObject({ budgets: [{ key_id: machine.key.id }] })
})

it('an operation that needs no scope concerns the calling key, or is a total', async () => {
  const { paths } = await read(getPath(gateway, '/openapi.json'))
  const open = Object.entries(paths as object).flatMap(([path, operations]) =>
    Object.entries(operations as object)
      .filter(([, { security }]) => security?.[0]?.APIKeyHeader?.length === 0)
      .map(([method]) => `${method} ${path}`),
  )
  expect(open.toSorted()).toEqual([
    'delete /v1/dashboard/keys/{id}',
    'get /v1/dashboard/keys',
    'get /v1/dashboard/me',
    'get /v1/network/stats',
  ])
})

it('a key that a key creates cannot create keys unless that was asked for', async () => {
  const caller = await makeCaller(['inference', 'nodes', 'keys'])
  const plain = await asCaller(caller, send(caller, 'POST', KEYS_PATH, { name: 'plain' }))
  expect(await outcomeOf(await make(plain))).toEqual([403, 'insufficient_scope'])
  const maker = await asCaller(caller, make(caller, { scopes: ['inference', 'keys'] }))
  expect((await make(maker)).status).toBe(200)
})

it.each([
  ['of one account', ['inference', 'keys']],
  ['of an administrator', ['inference', 'keys', 'admin']],
] as const)('a key %s with a budget makes no twin without one', async (_, scopes) => {
  const caller = await makeCaller(scopes)
  const admin = await makeCaller(['admin'])
  const budget = { key: caller.id, what: 'requests', per: 'day', bound: 5 }
  expect((await send(admin, 'PUT', '/v1/admin/budgets', budget)).status).toBe(200)
  const reply = await make(caller)
  expect(reply.status).toBe(403)
  expect(await reply.json()).toMatchObject({
    error: { code: 'insufficient_scope', message: 'A key with a budget cannot create keys' },
  })
  expect((await listOf(caller)).filter((key) => key.created_by === caller.id)).toEqual([])
})

it('the budget of a key names the keys that the key made before', async () => {
  const caller = await makeCaller(['inference', 'keys'])
  const admin = await makeCaller(['admin'])
  const twin = await asCaller(caller, make(caller))
  const budget = { key: caller.id, what: 'requests', per: 'day', bound: 5 }
  const set = (order: object) => read(send(admin, 'PUT', '/v1/admin/budgets', order))
  expect(await set(budget)).toEqual({ outcome: 'done', unbounded_keys: [twin.id] })
  const ofTwin = { ...budget, key: twin.id }
  expect(await set(ofTwin)).toEqual({ outcome: 'done', unbounded_keys: [] })
})

it.each([
  ['nodes', 'POST', VERIFIED_PATH],
  ['nodes', 'GET', VERIFIED_PATH],
  ['nodes', 'POST', '/v1/chat/completions'],
  ['nodes', 'POST', '/v1/dashboard/chat/completions'],
  ['admin', 'POST', VERIFIED_PATH],
  ['history:all', 'POST', VERIFIED_PATH],
  ['nodes', 'GET', '/v1/dashboard/rate-limits'],
  ['nodes', 'GET', '/v1/dashboard/usage'],
  ['inference', 'POST', '/v1/dashboard/keys'],
  ['inference', 'GET', '/v1/dashboard/nodes'],
  ['inference', 'POST', '/v1/dashboard/node'],
  ['inference', 'GET', '/v1/node/info?node_id=a'],
  ['inference', 'GET', '/v1/admin/log'],
  ['inference', 'GET', '/v1/admin/accounts'],
  ['inference', 'POST', '/v1/admin/accounts'],
  ['inference', 'GET', '/v1/admin/enclaves'],
  ['inference', 'GET', '/v1/admin/relayers'],
  ['inference', 'GET', '/v1/admin/anchors'],
  ['inference', 'GET', '/v1/admin/status'],
] as const)('a key that has the scope %s alone is refused %s %s', async (scope, method, path) => {
  const caller = await makeCaller([scope])
  const body = method === 'POST' ? CHAT_REQUEST : undefined
  expect(await outcomeOf(await send(caller, method, path, body))).toEqual([
    403,
    'insufficient_scope',
  ])
})

it('a key of any scope may describe itself, and read the totals of the network', async () => {
  for (const scope of ['inference', 'nodes', 'history:all', 'admin'] as const) {
    const caller = await makeCaller([scope])
    for (const path of [KEYS_PATH, '/v1/dashboard/me', '/v1/network/stats'])
      expect((await getPath(caller, path)).status).toBe(200)
  }
})
