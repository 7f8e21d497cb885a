import type { IncomingMessage } from 'node:http'
import { expect, it } from 'vitest'
import { clientGroupOf, createClientAddresses } from '#src/api/client-address.ts'

const PROXIES = ['10.0.0.0/8', '::1', '2001:db8::/32']

const clientOf = (trusted: readonly string[], peer: string | undefined, forwarded?: string) =>
  createClientAddresses(trusted)({
    socket: { remoteAddress: peer },
    headers: forwarded === undefined ? {} : { 'x-forwarded-for': forwarded },
  } as unknown as IncomingMessage)

it('the address of a client is that of its connection, whatever it says of itself', () => {
  expect(clientOf([], '203.0.113.7', '1.2.3.4')).toBe('203.0.113.7')
  expect(clientOf(PROXIES, '203.0.113.7', '1.2.3.4')).toBe('203.0.113.7')
  expect(clientOf([], '10.0.0.1', '1.2.3.4')).toBe('10.0.0.1')
  expect(clientOf([], '::ffff:203.0.113.7')).toBe('203.0.113.7')
  expect(clientOf(PROXIES, undefined, '1.2.3.4')).toBeNull()
})

it.each([
  ['1.2.3.4', '1.2.3.4'],
  ['6.6.6.6, 1.2.3.4', '1.2.3.4'],
  ['6.6.6.6, 1.2.3.4, 10.9.9.9', '1.2.3.4'],
  ['10.1.1.1, 10.2.2.2', '10.1.1.1'],
  ['1.2.3.4:5678', '1.2.3.4'],
  ['[2001:DB9::5]:443', '2001:db9::5'],
  ['fe80::1%eth0', 'fe80::1'],
  ['::ffff:1.2.3.4', '1.2.3.4'],
])("the client is the last address of %s that is not a proxy's", (forwarded, client) => {
  expect(clientOf(PROXIES, '10.0.0.1', forwarded)).toBe(client)
  expect(clientOf(PROXIES, '::ffff:10.0.0.1', forwarded)).toBe(client)
})

it.each([
  '',
  ',,,',
  'unknown',
  '1.2.3.4, marmalade',
  '1.2.3',
  '<script>',
  '1.2.3.4\n{"level":"info"}',
  'a'.repeat(100_000),
])('the client is the proxy when what the proxy forwards is not an address: %#', (forwarded) => {
  expect(clientOf(PROXIES, '10.0.0.1', forwarded)).toBe('10.0.0.1')
})

it('the address of a client is looked for in a long chain no further than some hops', () => {
  const chain = ['1.2.3.4', ...Array<string>(1_000).fill('10.0.0.2')].join(',')
  expect(clientOf(PROXIES, '10.0.0.1', chain)).toBe('10.0.0.2')
})

it.each([
  ['192.0.2.7', '192.0.2.7'],
  ['2001:db8:1:2:3:4:5:6', '2001:db8:1:2::/64'],
  ['2001:db8:1:2::', '2001:db8:1:2::/64'],
  ['2001:0db8:0001:0002:ffff::1', '2001:db8:1:2::/64'],
  ['2001:db8::1', '2001:db8:0:0::/64'],
  ['::1', '0:0:0:0::/64'],
  ['fe80::', 'fe80:0:0:0::/64'],
  [null, 'nowhere'],
])('the address %s counts for %s', (address, group) => {
  expect(clientGroupOf(address)).toBe(group)
})
