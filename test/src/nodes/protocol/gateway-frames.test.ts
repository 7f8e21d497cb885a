import fc from 'fast-check'
import { expect, it } from 'vitest'
import { encodeNodeControl, parseGatewayControl } from '#src/nodes/protocol/control-frames.ts'
import {
  decodeGatewayFrame,
  encodeChunk,
  encodeDone,
  encodeFailure,
} from '#src/nodes/protocol/frames.ts'

it('decodeFrame reads a chat frame', () => {
  const text = '{"id":"r1","model":"m","chat_request":{"model":"m","messages":[]}}'
  expect(decodeGatewayFrame(text)).toEqual({
    kind: 'chat',
    dialect: null,
    id: 'r1',
    model: 'm',
    request: { model: 'm', messages: [] },
    traceparent: null,
  })
})

it.each([
  ['a new image', { image: null }],
  ['a change of one', { image: 'aGk=' }],
  ['one without a size', { image: null, size: null }],
])('decodeFrame reads an image frame that asks for %s', (_, asked) => {
  const request = { prompt: 'a fox', n: 2, size: '512x512', ...asked }
  expect(decodeGatewayFrame(JSON.stringify({ request_id: 'r1', ...request }))).toEqual({
    kind: 'image',
    id: 'r1',
    request,
  })
})

it.each([
  ['an id that is no text', { request_id: 7 }],
  ['a long id', { request_id: 'x'.repeat(257) }],
])('decodeFrame does not understand an image frame with %s', (_, part) => {
  const frame = { prompt: 'a fox', image: null, n: 1, size: '256x256', ...part }
  expect(decodeGatewayFrame(JSON.stringify(frame))).toEqual({ kind: 'unknown' })
})

it.each([
  ['no prompt', { prompt: undefined }],
  ['an image that is no text', { image: 7 }],
  ['a number of another kind', { n: '1' }],
  ['a size that is no text', { size: 512 }],
])('decodeFrame names the request of an image frame with %s', (_, part) => {
  const asked = { prompt: 'a fox', image: null, n: 1, size: '256x256', ...part }
  const frame = { request_id: 'r1', ...asked }
  expect(decodeGatewayFrame(JSON.stringify(frame))).toMatchObject({ kind: 'bad_image', id: 'r1' })
})

it.each([
  ['a request that is no object', '{"id":"r1","model":"m","chat_request":[]}'],
  ['a request that is missing', '{"id":"r1","model":"m"}'],
  ['no model at all', '{"id":"r1","chat_request":{}}'],
  ['a model that is no text', '{"id":"r1","model":1,"chat_request":{}}'],
])('decodeFrame names the request of a chat frame with %s', (_, text) => {
  expect(decodeGatewayFrame(text)).toMatchObject({ kind: 'bad_chat', id: 'r1' })
})

it.each([
  '',
  'nonsense',
  '[]',
  'null',
  '7',
  '{}',
  '{"id":7,"chat_request":{}}',
  '{"id":"","chat_request":{}}',
  `{"id":"${'x'.repeat(257)}","chat_request":{}}`,
  '{"__proto__":{"id":"r1","model":"m","chat_request":{}}}',
  `{"id":${'['.repeat(100_000)}`,
])('decodeFrame does not understand the text %.40s', (text) => {
  expect(decodeGatewayFrame(text).kind).toBe('unknown')
})

it('decodeFrame throws for no text at all', () => {
  fc.assert(fc.property(fc.string(), (text) => void decodeGatewayFrame(text)))
  fc.assert(fc.property(fc.json(), (text) => void decodeGatewayFrame(text)))
})

it('frames to the gateway have the members of the public client', () => {
  const frame = { request_id: 'r1', error: null, chunk: null, status: 2 }
  expect(JSON.parse(encodeDone('r1'))).toEqual(frame)
  expect(JSON.parse(encodeChunk('r1', '{"a":1}'))).toEqual({
    ...frame,
    chunk: { a: 1 },
    status: 1,
  })
  expect(JSON.parse(encodeFailure('r1', { statusCode: 429, message: 'm' }))).toEqual({
    ...frame,
    error: { status_code: 429, message: 'm' },
    status: 3,
  })
  expect(
    JSON.parse(encodeNodeControl('n', { kind: 'pong', nonce: 'once', roundTripMs: 1.6 })),
  ).toEqual({
    protocol: 'ping-pong',
    data: {
      protocol_version: '1.0',
      message_type: 2,
      node_id: 'n',
      nonce: 'once',
      api_ping_time: [2],
    },
  })
  const gpu = { gpuPercent: 1, vramPercent: 2, powerPercent: 3 }
  const load = { cpuPercent: 4, ramPercent: 5, diskPercent: 6, gpus: [gpu] }
  expect(JSON.parse(encodeNodeControl('n', { kind: 'health', nonce: 'once', load }))).toEqual({
    protocol: 'health-check',
    data: {
      protocol_version: '1.0',
      message_type: 2,
      node_id: 'n',
      nonce: 'once',
      cpu_percent: 4,
      ram_percent: 5,
      disk_percent: 6,
      gpus: [{ gpu_percent: 1, vram_percent: 2, power_percent: 3 }],
    },
  })
})

const data = { protocol_version: '1.0', message_type: 1, node_id: 'n', nonce: 'once' }

it('parseControl reads what is asked of this node', () => {
  const ping = { ...data, rtt: 0, ping_streak: 1, miss_streak: 0 }
  expect(parseGatewayControl('ping-pong', ping, 'n')).toEqual({ kind: 'ping', nonce: 'once' })
  const reconnect = { ...data, message_type: 3, reconnect_request: true }
  expect(parseGatewayControl('ping-pong', reconnect, 'n')).toEqual({ kind: 'reconnect' })
  expect(parseGatewayControl('health-check', data, 'n')).toEqual({
    kind: 'health',
    nonce: 'once',
  })
  const cancel = { protocol_version: '1.0', message_type: 1, node_id: 'n', request_id: 'r1' }
  expect(parseGatewayControl('cancel', cancel, 'n')).toEqual({ kind: 'cancel', requestId: 'r1' })
})

it.each([
  ['another node', 'ping-pong', { ...data, node_id: 'other' }],
  ['another version', 'ping-pong', { ...data, protocol_version: '2.0' }],
  ['an answer', 'ping-pong', { ...data, message_type: 2 }],
  [
    'a reconnect that is not asked for',
    'ping-pong',
    { ...data, message_type: 3, reconnect_request: false },
  ],
  ['a nonce that is no text', 'ping-pong', { ...data, nonce: 7 }],
  ['a nonce that is too long', 'health-check', { ...data, nonce: 'x'.repeat(257) }],
  ['an unknown protocol', 'gossip', data],
  ['a cancel without a request', 'cancel', data],
  ['nothing', 'ping-pong', {}],
])('parseControl ignores a control frame with %s', (_, protocol, members) => {
  expect(parseGatewayControl(protocol, members, 'n')).toBeNull()
})
