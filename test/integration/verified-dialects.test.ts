import { beforeAll, describe, expect, it } from 'vitest'
import { type SharedAffidavit, useAffidavit } from '../support/use-affidavit.ts'

let service: SharedAffidavit

beforeAll(async () => {
  service = await useAffidavit()
})

const post = (path: string, body: object, headers: Readonly<Record<string, string>> = {}) =>
  fetch(service.url + path, {
    method: 'POST',
    headers: {
      authorization: `Bearer ${service.apiKey}`,
      'content-type': 'application/json',
      ...headers,
    },
    body: JSON.stringify(body),
  })

describe('calls of every dialect', () => {
  const bodies = {
    '/v1/verified/responses': { model: 'demo/echo', input: 'Repeated' },
    '/v1/verified/anthropic/messages': {
      model: 'demo/echo',
      max_tokens: 50,
      messages: [{ role: 'user', content: 'Repeated' }],
    },
  }

  it.each(Object.entries(bodies))(
    'a repeated key at %s gets the same answer',
    async (path, body) => {
      for (const stream of [false, true]) {
        const headers = { 'idempotency-key': crypto.randomUUID() }
        const one = await (await post(path, { ...body, stream }, headers)).text()
        const again = await post(path, { ...body, stream }, headers)
        expect(again.headers.get('idempotent-replayed')).toBe('true')
        const hashIn = (text: string) => /"hash":"([0-9a-f]{64})"/.exec(text)?.[1]
        const other = await again.text()
        expect(hashIn(one)).toMatch(/^[0-9a-f]{64}$/)
        expect(hashIn(other)).toBe(hashIn(one))
        if (stream) expect(other).toMatch(/event: (response\.completed|message_stop)\n/)
        else expect(other).toBe(one)
      }
    },
  )

  it.each(Object.entries(bodies))(
    'a repeated key at %s with other demands in a header is refused',
    async (path, body) => {
      const key = { 'idempotency-key': crypto.randomUUID() }
      const demand = (n: number) => {
        const session = { id: 'ab'.repeat(16), n, previous: n === 0 ? null : 'cd'.repeat(32) }
        const json = JSON.stringify({ session })
        return { ...key, 'affidavit-call': Buffer.from(json).toString('base64url') }
      }
      expect((await post(path, body, demand(0))).status).toBe(200)
      const other = await post(path, body, demand(1))
      expect(other.status).toBe(409)
      expect(await other.text()).toContain('idempotency_key_reused')
      expect((await post(path, body, demand(0))).headers.get('idempotent-replayed')).toBe('true')
    },
  )
})
