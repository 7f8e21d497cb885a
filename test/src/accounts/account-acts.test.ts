import { expect, it } from 'vitest'
import { AT_ONCE_MS } from '../../support/at-once.ts'
import { CHAT_REQUEST, getPath, outcomeOf, postChat } from '../../support/calls.ts'
import { useGateway } from '../../support/gateway.ts'
import { sendBody } from '../../support/register-node.ts'
import { createTestDatabase } from '../../support/test-database.ts'

const url = await createTestDatabase()
const postgres = { createDatabase: async () => url }
const gateway = await useGateway({ postgres })
/** Another gateway of the same service. */
const second = await useGateway({ postgres })
const operator = { accountName: 'operators', name: 'k', scopes: ['admin'] } as const
/** A key of the scope `admin`, and its public id. */
const {
  text: key,
  key: { id: keyId },
} = await gateway.keys.create(operator)

const send = (method: 'POST' | 'PUT' | 'DELETE', path: string, body?: unknown) =>
  sendBody({ url: gateway.url, key }, method, `/v1/admin/${path}`, body)
const get = async (path: string, as = key) =>
  (await (await getPath({ url: gateway.url, key: as }, path)).json()) as never
const query = (values: Readonly<Record<string, string>>) => new URLSearchParams(values).toString()

async function latestActs(count: number) {
  const { acts } = (await get(`/v1/admin/log?limit=${count}`)) as {
    readonly acts: readonly { readonly kind: string; readonly target: string }[]
  }
  return acts
}

it('lists of accounts come in pages, newest first, with no account twice', async () => {
  const names = Array.from({ length: 7 }, () => `page ${crypto.randomUUID()}`)
  for (const name of names) await send('POST', 'accounts', { name })
  const seen: string[] = []
  for (let cursor: string | null = null; ; ) {
    const page = (await get(
      `/v1/admin/accounts?limit=3${cursor === null ? '' : `&cursor=${cursor}`}`,
    )) as {
      readonly accounts: readonly { readonly name: string }[]
      readonly cursor: string | null
    }
    seen.push(...page.accounts.map(({ name }) => name))
    // Who is new meanwhile, or gone, shifts no page.
    if (cursor === null) await send('POST', 'accounts', { name: `late ${names[0]}` })
    if (seen.length === 3) await send('DELETE', `accounts?${query({ name: seen[2] ?? '' })}`)
    cursor = page.cursor
    if (cursor === null) break
  }
  expect(seen.slice(0, 7)).toEqual(names.toReversed())
  expect(new Set(seen).size).toBe(seen.length)
  expect(seen).toContain('operators')
})

it.each([
  ['accounts?limit=0', 'query.limit'],
  ['accounts?limit=1001', 'query.limit'],
  ['accounts?cursor=x', 'query.cursor'],
  [`accounts?cursor=${crypto.randomUUID()}`, 'query.cursor'],
  ['log?kind=%00', 'query.kind'],
  ['log?kind=', 'query.kind'],
  ['log?limit=1001', 'query.limit'],
  ['log?before=-1', 'query.before'],
  ['log?since=x', 'query.since'],
])('the lists of administrators refuse the query %s', async (asked, place) => {
  const reply = await getPath({ url: gateway.url, key }, `/v1/admin/${asked}`)
  expect(await outcomeOf(reply)).toEqual([422, [place]])
})

it('an account is disabled, enabled and deleted at every gateway, and the log says by whom and from where', async () => {
  const name = `<b>late payer</b> ${crypto.randomUUID()}`
  const { text: theirs, key: facts } = await gateway.keys.create({ accountName: name, name: 'k' })
  const outcomes = async (asked = theirs) =>
    Promise.all(
      [gateway, second].map(async ({ url }) =>
        outcomeOf(await getPath({ url, key: asked }, '/v1/dashboard/me')),
      ),
    )
  const both = (status: number, code?: string) => [
    [status, code],
    [status, code],
  ]
  const set = (state: string) => send('PUT', 'accounts/state', { name, state })
  expect(await outcomes()).toEqual(both(200))
  expect((await set('disabled')).status).toBe(200)
  await expect
    .poll(() => outcomes(), { timeout: AT_ONCE_MS })
    .toEqual(both(403, 'account_disabled'))
  const wrong = `${theirs.slice(0, -1)}${theirs.endsWith('A') ? 'E' : 'A'}`
  expect(await outcomes(wrong)).toEqual(both(401, 'invalid_credentials'))
  expect((await set('active')).status).toBe(200)
  await expect.poll(() => outcomes(), { timeout: AT_ONCE_MS }).toEqual(both(200))
  expect(await outcomeOf(await set('deleted'))).toEqual([422, ['body.state']])
  expect((await send('DELETE', `accounts?${query({ name })}`)).status).toBe(200)
  await expect
    .poll(() => outcomes(), { timeout: AT_ONCE_MS })
    .toEqual(both(401, 'invalid_credentials'))
  expect(await outcomeOf(await set('active'))).toEqual([404, 'not_found'])
  const who = { who: `key ${keyId}`, from: '127.0.0.1', target: name }
  expect(await latestActs(4)).toMatchObject([
    { ...who, kind: 'account.enable', outcome: 'unknown_account' },
    { ...who, kind: 'account.delete', outcome: 'set' },
    { ...who, kind: 'account.enable', outcome: 'set' },
    { ...who, kind: 'account.disable', outcome: 'set' },
  ])
  const { accountId } = facts
  const again = await sendBody({ url: gateway.url, key }, 'POST', '/v1/dashboard/keys', {
    name: 'late',
    account_id: accountId,
  })
  expect(await outcomeOf(again)).toEqual([422, ['body.account_id']])
  const next = await gateway.keys.openAccount(name)
  expect(next).toMatchObject({ name, isNew: true })
  expect(next.id).not.toBe(accountId)
})

it('no key is made for an account while it is deleted', async () => {
  const name = `gone ${crypto.randomUUID()}`
  const { id } = await gateway.keys.openAccount(name)
  const [made] = await Promise.all([
    gateway.keys.createFor(id, { name: 'racing' }),
    gateway.accounts.deleteAccount(name, 1),
  ])
  if (typeof made === 'string') return
  expect(await second.keys.authenticate(made.text)).toBeNull()
})

const put = async (body: object) => outcomeOf(await send('PUT', 'budgets', body))
const list = async (asked: Readonly<Record<string, string>>) =>
  (await get(`/v1/admin/budgets?${query(asked)}`)) as {
    readonly budgets: readonly { readonly what: string; readonly used: number }[]
    readonly cursor: string | null
  }

it('budgets are set over HTTP, listed in pages, shown to their holder, and removed', async () => {
  const account = `a name, with spaces ${crypto.randomUUID()}`
  const made = await gateway.keys.create({ accountName: account, name: 'k' })
  const other = await gateway.keys.create({ accountName: account, name: 'other' })
  const ofKey = { key: made.key.id, what: 'requests', per: 'day', bound: 5 }
  for (const body of [
    { account, what: 'money', per: 'total', bound: Number.MAX_SAFE_INTEGER },
    { account, what: 'tokens', per: 'month', bound: 0 },
    ofKey,
    { account, key: other.key.id, what: 'requests', per: 'day', bound: 6 },
  ])
    expect(await put(body)).toEqual([200, undefined])
  const whole = await list({ account })
  expect(whole).toMatchObject({ cursor: null, budgets: { length: 4 } })
  const seen: unknown[] = []
  for (let cursor: string | null = ''; cursor !== null; ) {
    const page = await list({ account, limit: '1', ...(cursor === '' ? {} : { cursor }) })
    seen.push(...page.budgets)
    cursor = page.cursor
  }
  expect(seen).toEqual(whole.budgets)
  expect(await list({ key: made.key.id })).toMatchObject({
    budgets: [{ ...ofKey, account, used: 0, left: 5, renews_at: expect.any(Number) }],
  })
  const { budgets } = (await get('/v1/dashboard/me', made.text)) as {
    readonly budgets: readonly unknown[]
  }
  expect(budgets).toMatchObject([
    { key_id: null, what: 'money', per: 'total', used: 0, renews_at: null },
    { key_id: null, what: 'tokens', per: 'month', bound: 0, used: 0, left: 0 },
    { key_id: made.key.id, what: 'requests', per: 'day', bound: 5, used: 0, left: 5 },
  ])
  const holder = { url: second.url, key: made.text }
  expect(await outcomeOf(await postChat(holder, CHAT_REQUEST))).toEqual([429, 'insufficient_quota'])
  const { used } = (await list({ key: made.key.id })).budgets[0] ?? {}
  expect(used).toBe(0)
  // A bound in the query is not read.
  const removed = await send('DELETE', `budgets?${query({ ...ofKey, bound: '5' })}`)
  expect(removed.status).toBe(200)
  expect(await list({ key: made.key.id })).toMatchObject({ budgets: [] })
  expect(await latestActs(2)).toMatchObject([
    { kind: 'budget.set', target: made.key.id, details: { bound: null } },
    { kind: 'budget.set', target: other.key.id, details: { bound: 6 } },
  ])
  await gateway.accounts.deleteAccount(account, 1)
  expect(await list({ account })).toMatchObject({ budgets: [] })
})

it.each([
  [{}, ['body.bound', 'body.what', 'body.per']],
  [{ what: 'tokens', per: 'day', bound: 1 }, ['body.account']],
  [{ account: 'a\nb', what: 'tokens', per: 'day', bound: 1 }, ['body.account']],
  [{ key: 'a\u0000', what: 'tokens', per: 'day', bound: 1 }, ['body.key']],
  [{ account: 'a', what: 'time', per: 'day', bound: 1 }, ['body.what']],
  [{ account: 'a', what: 'tokens', per: 'year', bound: 1 }, ['body.per']],
  [{ account: 'a', what: 'tokens', per: 'day', bound: -1 }, ['body.bound']],
  [{ account: 'a', what: 'tokens', per: 'day', bound: 1.5 }, ['body.bound']],
  [{ account: 'a', what: 'money', per: 'day', bound: '2.50' }, ['body.bound']],
  [{ account: 'a', what: 'tokens', per: 'day', bound: 2 ** 53 }, ['body.bound']],
  [{ account: 'a', what: 'tokens', per: 'day', bound: null }, ['body.bound']],
])('the body %j sets no budget', async (body, places) => {
  const [status, found] = await put(body)
  expect([status, (found as string[]).toSorted()]).toEqual([422, places.toSorted()])
})

it('budgets of unknown accounts and keys are refused, and so are unknown cursors', async () => {
  const budget = { what: 'tokens', per: 'day', bound: 1 }
  expect(await put({ account: 'nobody', ...budget })).toEqual([404, 'not_found'])
  expect(await put({ key: 'a'.repeat(16), ...budget })).toEqual([404, 'not_found'])
  expect(await put({ account: 'tests', key: keyId, ...budget })).toEqual([404, 'not_found'])
  const cursors = ['x', 'tokens day -', 'tokens day - a\nb', 'tokens year - a', '\u0000']
  for (const cursor of cursors)
    expect(
      await outcomeOf(
        await getPath({ url: gateway.url, key }, `/v1/admin/budgets?${query({ cursor })}`),
      ),
    ).toEqual([422, ['query.cursor']])
})
