import { expect, it } from 'vitest'
import { busFaults } from '#src/bus/settings.ts'

const production = (more: Readonly<Record<string, string>>) =>
  busFaults({ NODE_ENV: 'production', ...more })

it.each([
  ['no NATS_URL at all', {}],
  ['TLS and a user', { NATS_URL: 'tls://gate:secret@nats:4222' }],
  ['TLS and a token', { NATS_URL: 'tls://token@nats:4222' }],
  [
    'TLS and credentials in a file',
    { NATS_URL: 'tls://nats:4222', NATS_CREDENTIALS_FILE: '/run/gate.creds' },
  ],
  [
    'certificates of its own and a user',
    { NATS_URL: 'nats://gate:secret@nats:4222', NATS_CA_FILE: '/etc/ca.pem' },
  ],
  ['a closed network', { NATS_URL: 'nats://nats:4222', NATS_CLOSED_NETWORK: 'true' }],
])('production takes a bus with %s', (_, given) => {
  expect(production(given)).toEqual([])
})

it.each([
  ['neither TLS nor login', { NATS_URL: 'nats://nats:4222' }, 'TLS (tls://) and a login'],
  ['no TLS', { NATS_URL: 'nats://gate:secret@nats:4222' }, 'TLS (tls://)'],
  ['no login', { NATS_URL: 'tls://nats:4222,tls://other:4222' }, 'a login'],
])('production refuses a bus with %s, and says nothing of its address', (_, given, missing) => {
  const [fault, ...others] = production(given)
  expect(fault).toMatch(/^NATS_URL: expected .* in production, or NATS_CLOSED_NETWORK=true/)
  expect(fault).toContain(`expected ${missing} in production`)
  expect(fault).not.toMatch(/secret|4222/)
  expect(others).toEqual([])
})

it('development takes a bus without TLS and login', () => {
  expect(busFaults({ NATS_URL: 'nats://127.0.0.1:4222' })).toEqual([])
})
