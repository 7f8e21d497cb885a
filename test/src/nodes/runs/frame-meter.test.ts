import { EventEmitter } from 'node:events'
import { expect, it } from 'vitest'
import { meterFrames, PACKET_COST_BYTES } from '#src/nodes/runs/image-memory.ts'

/** A meter on a stream of packets, that allows so much. */
function openMeter(bytesMax: number) {
  const stream = new EventEmitter()
  const allowed = { bytesMax, exceeded: 0 }
  const meter = meterFrames(stream, {
    bytesMax: () => allowed.bytesMax,
    onExceeded: () => {
      allowed.exceeded++
    },
  })
  return { meter, allowed, send: (bytes: number) => stream.emit('data', Buffer.alloc(bytes)) }
}

it('a frame meter allows a frame of the allowed size, in packets of a wide-area network', () => {
  const { meter, allowed, send } = openMeter(1_000_000)
  for (let sent = 0; sent < 1_000_000; sent += 1_400) send(1_400)
  expect(allowed.exceeded).toBe(0)
  meter.frameEnded()
  for (let sent = 0; sent < 1_000_000; sent += 1_400) send(1_400)
  expect(allowed.exceeded).toBe(0)
})

it('a frame meter reports a frame that is too long at the first packet that is too many', () => {
  const { allowed, send } = openMeter(100_000)
  send(100_000)
  expect(allowed.exceeded).toBe(0)
  send(30_000)
  expect(allowed.exceeded).toBe(1)
})

it('a frame meter counts what packets cost, however little is in them', () => {
  const { allowed, send } = openMeter(100 * PACKET_COST_BYTES)
  for (let packet = 0; packet < 130; packet++) send(1)
  expect(allowed.exceeded).toBeGreaterThan(0)
})

it('a frame meter reports bytes that came before the allowance became smaller', () => {
  const { meter, allowed, send } = openMeter(100_000)
  send(90_000)
  allowed.bytesMax = 1_000
  expect(allowed.exceeded).toBe(0)
  meter.check()
  expect(allowed.exceeded).toBe(1)
})
