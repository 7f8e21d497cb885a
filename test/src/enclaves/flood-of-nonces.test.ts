import { randomBytes } from 'node:crypto'
import { expect, it } from 'vitest'
import { useGateway } from '../../support/gateway.ts'

const gateway = await useGateway({ settings: { trustedProxies: ['127.0.0.1'] } })

/** Asks for a fresh document, as a client at an address does; gives the status. */
async function ask(address: string, more: Readonly<Record<string, string>> = {}, query = '') {
  const nonce = randomBytes(32).toString('hex')
  const reply = await fetch(`${gateway.url}/v1/attestation?nonce=${nonce}${query}`, {
    headers: { 'x-forwarded-for': address, ...more },
  })
  return reply.status
}

/** Asks over 16 connections, again and again, until it is refused everywhere. */
async function flood(addressOf: (at: number) => string, query = '') {
  const statuses: number[] = []
  const work = async (connection: number) => {
    for (let count = 0; count < 20; count++)
      statuses.push(await ask(addressOf(connection * 20 + count), {}, query))
  }
  await Promise.all(Array.from({ length: 16 }, (_, connection) => work(connection)))
  return statuses
}

it.each([
  ['of one IPv4 address', () => '198.51.100.7', '198.51.100.8'],
  ['of one IPv6 network', (at: number) => `2001:db8:1:2::${at.toString(16)}`, '2001:db8:1:3::1'],
])('a flood of nonces %s keeps no other client from a document', async (_, addressOf, other) => {
  expect(await flood(addressOf)).toContain(503)
  expect(await ask(other)).toBe(200)
})

it('a flood of nonces of many addresses keeps no client with a key from a document', async () => {
  expect(await flood((at) => `203.0.113.${at % 256}`)).toContain(503)
  const key = { authorization: `Bearer ${gateway.key}` }
  expect(await ask('192.0.2.1', key)).toBe(200)
})
