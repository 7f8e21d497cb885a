import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { createAdminLog } from '#src/accounts/admin-log-store.ts'
import { openDatabase } from '#src/storage/database.ts'
import { AT_ONCE_MS } from '../../support/at-once.ts'
import { GATEWAY_HOOK_TIMEOUT_MS, startGateway, type TestGateway } from '../../support/gateway.ts'
import { createTestDatabase } from '../../support/test-database.ts'

let gateway: TestGateway
let url: string
beforeAll(async () => {
  url = await createTestDatabase()
  gateway = await startGateway({ postgres: { createDatabase: async () => url } })
}, GATEWAY_HOOK_TIMEOUT_MS)
afterAll(() => gateway.stop(), GATEWAY_HOOK_TIMEOUT_MS)

async function get(path: string, key: string, init: RequestInit = {}) {
  const reply = await fetch(`${gateway.url}${path}`, {
    ...init,
    headers: { authorization: `Bearer ${key}`, 'content-type': 'application/json' },
  })
  return { status: reply.status, body: (await reply.json()) as never }
}

async function makeKey(accountName: string) {
  return (await gateway.keys.create({ accountName, name: 'k', scopes: ['inference', 'admin'] }))
    .text
}

describe('a disabled account', () => {
  it('a disabled account is told so with 403, whatever it asks for, until it is enabled', async () => {
    const key = await makeKey('late payer')
    expect(await get('/v1/dashboard/me', key)).toMatchObject({ status: 200 })
    await gateway.accounts.setDisabled('late payer', 1)
    await expect
      .poll(() => get('/v1/dashboard/me', key), { timeout: AT_ONCE_MS })
      .toMatchObject({ status: 403, body: { error: { code: 'account_disabled' } } })
    const post = { method: 'POST', body: '{}' }
    expect(await get('/v1/chat/completions', key, post)).toMatchObject({ status: 403 })
    expect(
      await get('/v1/dashboard/me', `${key.slice(0, -1)}${key.endsWith('A') ? 'B' : 'A'}`),
    ).toMatchObject({ status: 401 })
    await gateway.accounts.setDisabled('late payer', null)
    await expect
      .poll(() => get('/v1/dashboard/me', key), { timeout: AT_ONCE_MS })
      .toMatchObject({ status: 200 })
  })
})

describe('a deleted account', () => {
  it('a deleted account has no keys, and its name is free for another', async () => {
    const key = await makeKey('gone')
    const { id } = await gateway.keys.openAccount('gone')
    expect(await gateway.accounts.deleteAccount('gone', 1)).toBe(true)
    await expect
      .poll(() => get('/v1/dashboard/me', key), { timeout: AT_ONCE_MS })
      .toMatchObject({ status: 401 })
    const list = await get('/v1/admin/accounts', await makeKey('administrators'))
    expect(list.status).toBe(200)
    expect(JSON.stringify(list.body)).not.toContain(id)
    expect(await gateway.accounts.deleteAccount('gone', 1)).toBe(false)
    const next = await gateway.keys.openAccount('gone')
    expect(next).toMatchObject({ name: 'gone', isNew: true })
    expect(next.id).not.toBe(id)
  })
})

describe('GET /v1/admin/log', () => {
  it('the log of administrators tells admin keys alone who made and ended keys, and from where', async () => {
    const admin = await makeKey('operations')
    const { key_id: adminId, account_id: accountId } = (await get('/v1/dashboard/me', admin)).body
    const made = await get('/v1/dashboard/keys', admin, {
      method: 'POST',
      body: JSON.stringify({ name: 'by hand' }),
    })
    const { id, key } = made.body as { readonly id: string; readonly key: string }
    await get(`/v1/dashboard/keys/${id}`, admin, { method: 'DELETE' })
    expect(await get('/v1/admin/log', gateway.key)).toMatchObject({ status: 403 })
    const { status, body } = await get('/v1/admin/log?limit=2', admin)
    const who = { who: `key ${adminId}`, account_id: accountId, from: '127.0.0.1' }
    expect(status).toBe(200)
    expect(body).toMatchObject({
      acts: [
        { ...who, kind: 'key.revoke', target: id, outcome: 'revoked' },
        { ...who, kind: 'key.create', target: id, details: { name: 'by hand' } },
      ],
    })
    const database = await openDatabase({ url })
    try {
      const query = { before: null, kind: null, since: null, until: null, limit: 1_000 }
      const acts = JSON.stringify(await createAdminLog(database).list(query))
      for (const secret of [key, admin]) expect(acts).not.toContain(secret.slice(21))
    } finally {
      await database.close()
    }
  })
})
