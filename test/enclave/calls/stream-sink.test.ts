import { IncomingMessage, ServerResponse } from 'node:http'
import { Socket } from 'node:net'
import { afterEach, beforeEach, expect, it, vi } from 'vitest'
import { waitForDrain } from '#enclave/calls/stream-sink.ts'

const TIMEOUT_MS = 30_000

let response: ServerResponse
let cancel: AbortController

beforeEach(() => {
  vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] })
  response = new ServerResponse(new IncomingMessage(new Socket()))
  cancel = new AbortController()
})
afterEach(() => {
  vi.useRealTimers()
})

it.each<[string, () => unknown]>([
  ['has room again', () => response.emit('drain')],
  ['is closed', () => response.emit('close')],
  ['belongs to a cancelled call', () => cancel.abort(new Error('left'))],
])('the wait for a connection that %s ends, and no timer or listener is left', async (_, end) => {
  const removed = vi.spyOn(cancel.signal, 'removeEventListener')
  const waiting = waitForDrain(response, cancel, TIMEOUT_MS)
  expect(vi.getTimerCount()).toBe(1)
  end()
  await waiting
  const isCancelled = cancel.signal.aborted
  vi.advanceTimersByTime(TIMEOUT_MS)
  expect(cancel.signal.aborted).toBe(isCancelled)
  expect(response.listenerCount('drain') + response.listenerCount('close')).toBe(0)
  expect(removed).toHaveBeenCalledTimes(1)
})

it('the wait for a connection that stays full cancels the call once its time is over', async () => {
  const waiting = waitForDrain(response, cancel, TIMEOUT_MS)
  vi.advanceTimersByTime(TIMEOUT_MS - 1)
  expect(cancel.signal.aborted).toBe(false)
  vi.advanceTimersByTime(1)
  expect(String(cancel.signal.reason)).toContain('no reading within 30000 ms')
  await waiting
})

it('no wait begins for a call that was cancelled', async () => {
  cancel.abort()
  await waitForDrain(response, cancel, TIMEOUT_MS)
  expect(vi.getTimerCount()).toBe(0)
})
