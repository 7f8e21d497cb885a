import fc from 'fast-check'
import { expect, it } from 'vitest'
import type { JsonObject } from '#attestation/json/value.ts'
import {
  encodeGatewayControl,
  GPUS_MAX,
  parseNodeControl,
} from '#src/nodes/protocol/control-frames.ts'

it('frames to a node are those of the public protocol, and none of their members is null', () => {
  const figures = { rttMs: 12.6, pingStreak: 2, missStreak: 0 }
  expect(JSON.parse(encodeGatewayControl('a', { kind: 'ping', nonce: 'n', ...figures }))).toEqual({
    protocol: 'ping-pong',
    data: {
      protocol_version: '1.0',
      message_type: 1,
      node_id: 'a',
      nonce: 'n',
      rtt: 13,
      ping_streak: 2,
      miss_streak: 0,
    },
  })
  expect(JSON.parse(encodeGatewayControl('a', { kind: 'reconnect', nonce: 'n' }))).toEqual({
    protocol: 'ping-pong',
    data: {
      protocol_version: '1.0',
      message_type: 3,
      node_id: 'a',
      nonce: 'n',
      reconnect_request: true,
    },
  })
  expect(JSON.parse(encodeGatewayControl('a', { kind: 'health', nonce: 'n' }))).toEqual({
    protocol: 'health-check',
    data: { protocol_version: '1.0', message_type: 1, node_id: 'a', nonce: 'n' },
  })
  expect(JSON.parse(encodeGatewayControl('a', { kind: 'cancel', requestId: 'r' }))).toEqual({
    protocol: 'cancel',
    data: { protocol_version: '1.0', message_type: 1, node_id: 'a', request_id: 'r' },
  })
})

const PONG = {
  protocol_version: '1.0',
  message_type: 2,
  node_id: 'a',
  nonce: 'n',
  api_ping_time: [1, null, 2.5],
}
const HEALTH = {
  protocol_version: '1.0',
  message_type: 2,
  node_id: 'a',
  nonce: 'n',
  cpu_percent: 12.5,
  ram_percent: 'much',
  disk_percent: 101,
  gpus: [{}, {}],
}

it('a pong of a node is read', () => {
  expect(parseNodeControl('ping-pong', PONG, 'a')).toEqual({ kind: 'pong', nonce: 'n' })
})

it('a health answer of a node is read, without what is not a percentage', () => {
  expect(parseNodeControl('health-check', HEALTH, 'a')).toEqual({
    kind: 'health',
    nonce: 'n',
    load: { cpuPercent: 12.5, ramPercent: null, diskPercent: null, gpus: 2 },
  })
})

it('a drain that a node announces is read', () => {
  const data = { protocol_version: '1.0', message_type: 1, node_id: 'a' }
  expect(parseNodeControl('drain', data, 'a')).toEqual({ kind: 'drain' })
})

it('control frames of another node are ignored', () => {
  expect(parseNodeControl('ping-pong', PONG, 'b')).toEqual({ kind: 'other' })
})

it.each([
  ['ping-pong', { ...PONG, message_type: 1 }],
  ['ping-pong', { ...PONG, nonce: 7 }],
  ['ping-pong', { ...PONG, nonce: 'x'.repeat(65) }],
  ['ping-pong', { ...PONG, api_ping_time: ['1'] }],
  ['ping-pong', { ...PONG, protocol_version: 1 }],
  ['health-check', { ...HEALTH, gpus: null }],
  ['health-check', { ...HEALTH, gpus: Array.from({ length: GPUS_MAX + 1 }, () => ({})) }],
  ['health-check', { ...HEALTH, message_type: 1 }],
  ['drain', { ...PONG }],
  ['cancel', PONG],
  ['toString', PONG],
])('the control frame %s %j is malformed', (protocol, data) => {
  expect(parseNodeControl(protocol, data, 'a').kind).toBe('malformed')
})

it('control frames of any form are parsed without throwing', () => {
  const names = fc.constantFrom(
    'protocol_version',
    'message_type',
    'node_id',
    'nonce',
    'gpus',
    'api_ping_time',
  )
  const values = fc.oneof(fc.constantFrom('1.0', 'a', 1, 2), fc.jsonValue())
  fc.assert(
    fc.property(
      fc.constantFrom('ping-pong', 'health-check', 'drain'),
      fc.dictionary(names, values),
      (name, data) => {
        expect(parseNodeControl(name, data as JsonObject, 'a').kind).toMatch(
          /^(pong|health|drain|other|malformed)$/,
        )
      },
    ),
  )
})
