import { Readable } from 'node:stream'
import { expect, it } from 'vitest'
import type { EnclaveError } from '#src/enclaves/enclave-errors.ts'
import {
  type EnclaveEvent,
  EVENT_BYTES_MAX,
  readEnclaveEvents,
} from '#src/enclaves/enclave-replies.ts'
import { namedEvent } from '../../support/scripted-enclave.ts'

const notice = { notary: `0x${'11'.repeat(20)}`, index: 7, outcome: 'complete' as const }
const fault = { status: 502, code: 'provider_error' as const, message: 'broke — off' }
const chunks = 'data: {"a":"é\\nevent: sealed"}\n\ndata: {"b":"data: x"}\n\n: ping\n\n'
const sealed = namedEvent('sealed', notice)

/**
 * A body made of `parts`. `dump` reads on, as undici's does; `wasCut` says whether the call was
 * ended.
 */
function bodyOf(parts: readonly Uint8Array[]) {
  const stream = Readable.from(parts, { objectMode: false })
  let isRead = false
  return {
    body: Object.assign(stream, {
      dump: async () => {
        isRead = true
        stream.resume()
      },
    }),
    wasCut: () => stream.destroyed && !isRead,
  }
}

async function collect(parts: readonly Uint8Array[]) {
  const events: EnclaveEvent[] = []
  for await (const event of readEnclaveEvents(bodyOf(parts).body)) events.push(event)
  return events
}

function textOf(events: readonly EnclaveEvent[]): string {
  return Buffer.concat(
    events.flatMap((event) => (event.kind === 'chunks' ? [event.bytes] : [])),
  ).toString()
}

function splitAt(text: string, ...positions: readonly number[]) {
  const bytes = Buffer.from(text)
  const edges = [0, ...positions, bytes.length]
  return edges.slice(1).map((end, index) => bytes.subarray(edges[index], end))
}

const whole = chunks + namedEvent('fault', fault) + sealed
const expected = [
  { kind: 'fault', fault },
  { kind: 'sealed', notice },
]

it('readEnclaveEvents gives the same wherever the bytes are split in two', async () => {
  for (let position = 1; position < Buffer.byteLength(whole); position++) {
    const events = await collect(splitAt(whole, position))
    expect(textOf(events), `split at ${position}`).toBe(chunks)
    expect(events.filter(({ kind }) => kind !== 'chunks')).toEqual(expected)
  }
})

it('readEnclaveEvents gives the same byte by byte, and only whole events', async () => {
  const events = await collect([...Buffer.from(whole)].map((byte) => Uint8Array.of(byte)))
  expect(textOf(events)).toBe(chunks)
  for (const event of events)
    if (event.kind === 'chunks') expect(Buffer.from(event.bytes).toString()).toMatch(/\n\n$/)
  expect(events.filter(({ kind }) => kind !== 'chunks')).toEqual(expected)
})

it('readEnclaveEvents gives what has come before more comes', async () => {
  const stream = new Readable({ read() {} })
  const events = readEnclaveEvents(Object.assign(stream, { dump: async () => {} }))
  stream.push('data: {"a":1}\n\ndata: {"b"')
  expect((await events.next()).value).toEqual({
    kind: 'chunks',
    bytes: Buffer.from('data: {"a":1}\n\n'),
  })
  await events.return(undefined)
  expect(stream.destroyed).toBe(true)
})

it('readEnclaveEvents leaves a sealed call alone, so that its connection is used again', async () => {
  const { body, wasCut } = bodyOf([Buffer.from(sealed)])
  for await (const event of readEnclaveEvents(body)) expect(event.kind).toBe('sealed')
  expect(wasCut()).toBe(false)
})

it('readEnclaveEvents ends the call when its reader leaves early', async () => {
  const { body, wasCut } = bodyOf([Buffer.from(chunks), Buffer.from(sealed)])
  for await (const _ of readEnclaveEvents(body)) break
  expect(wasCut()).toBe(true)
})

it.each([
  ['an end without a seal', [chunks], 'unavailable'],
  ['no events at all', [], 'unavailable'],
  ['an end within an event', [sealed.slice(0, -1)], 'unavailable'],
  ['a seal that is no JSON', ['event: sealed\ndata: {\n\n'], 'protocol'],
  ['a seal of another form', [namedEvent('sealed', { ...notice, index: -1 })], 'protocol'],
])('readEnclaveEvents refuses %s', async (_, texts, code) => {
  const failure = collect(texts.map((text) => Buffer.from(text)))
  await expect(failure).rejects.toMatchObject({ name: 'EnclaveError', code })
})

it('readEnclaveEvents passes on events with names of their own, and finds its own among them', async () => {
  const given = 'event: a.b\ndata: {}\n\nevent: sealed.x\ndata: {}\n\n'
  const texts = [`${given}event: last\ndata: {"type":"z"}\n\n`, sealed]
  const events = await collect(texts.map((text) => Buffer.from(text)))
  expect(events).toEqual([
    { kind: 'chunks', bytes: Buffer.from(given) },
    { kind: 'last', chunk: '{"type":"z"}' },
    { kind: 'sealed', notice },
  ])
})

it('readEnclaveEvents refuses an event without end, in time linear in its bytes', async () => {
  const part = Buffer.alloc(64 * 1024, 0x61)
  const parts = Array(EVENT_BYTES_MAX / part.length + 1).fill(part)
  const start = performance.now()
  await expect(collect(parts)).rejects.toEqual(
    expect.objectContaining({ code: 'reply_too_large' } satisfies Partial<EnclaveError>),
  )
  expect(performance.now() - start).toBeLessThan(5000)
})

it("readEnclaveEvents throws the signal's reason when that ended the call", async () => {
  const abort = new AbortController()
  const stream = new Readable({ read() {} })
  const events = readEnclaveEvents(Object.assign(stream, { dump: async () => {} }), abort.signal)
  const next = events.next()
  abort.abort(new Error('the reason'))
  stream.destroy(new Error('some error of the client'))
  await expect(next).rejects.toThrow('the reason')
})
