import { setImmediate as turn } from 'node:timers/promises'
import fc from 'fast-check'
import { expect, it } from 'vitest'
import {
  ChannelError,
  createChannel,
  FRAME_COST,
  MESSAGE_BYTES_MAX,
  type OpenChannel,
  PART_BYTES_MAX,
  WINDOW_BYTES,
} from '#src/bus/channel.ts'

type Side = 'left' | 'right'
type Frame = { readonly to: Side; readonly bytes: Uint8Array }

/** Two ends, and what carries their frames: `meddle` gives what becomes of each. */
function openPair(
  meddle: (frame: Uint8Array, to: Side) => readonly Uint8Array[] = (frame) => [frame],
) {
  const over: Side[] = []
  const held = { left: 0, right: 0 }
  const wire: Frame[] = []
  const ends = {} as Record<Side, OpenChannel>
  const open = (side: Side) => {
    const to = side === 'left' ? 'right' : 'left'
    ends[side] = createChannel({
      peer: to,
      publish: (frame) => {
        for (const bytes of meddle(frame, to)) wire.push({ to, bytes })
      },
      hold: (bytes) => {
        held[side] += bytes
        return true
      },
      onOver: () => over.push(side),
    })
  }
  open('left')
  open('right')
  /** Carries frames until no side sends more. */
  const carry = async () => {
    for (let idle = 0; idle < 4; idle++) {
      await turn()
      for (let frame = wire.shift(); frame !== undefined; frame = wire.shift()) {
        ends[frame.to].receive(frame.bytes)
        idle = 0
      }
    }
  }
  return { ...ends, over, held, carry }
}

async function readAll(channel: OpenChannel): Promise<Uint8Array[]> {
  const messages: Uint8Array[] = []
  for await (const message of channel.messages) messages.push(message)
  return messages
}

/** Resolves to what it gave or threw; never rejects. */
const settled = <Value>(promise: Promise<Value>) =>
  promise.then(
    (value) => ({ value, error: null }),
    (error: unknown) => ({ value: null, error }),
  )

const message = (length: number, seed = 0) =>
  new Uint8Array(Buffer.alloc(length, `message ${seed} of many `))

const areSame = (left: readonly Uint8Array[] | null, right: readonly Uint8Array[]) =>
  left?.length === right.length &&
  right.every((one, at) => Buffer.compare(one, left[at] ?? one) === 0)

const lengths = fc.array(
  fc.oneof(
    fc.integer({ min: 0, max: 300 }),
    fc.integer({ min: PART_BYTES_MAX - 2, max: PART_BYTES_MAX + 2 }),
    fc.integer({ min: WINDOW_BYTES - 1, max: WINDOW_BYTES * 2 }),
  ),
  { maxLength: 6 },
)

async function sendAll(channel: OpenChannel, messages: readonly Uint8Array[]): Promise<void> {
  for (const one of messages) await channel.send(one)
  await channel.end()
}

it('a channel gives the messages that were sent, each whole, both ways at once', async () => {
  await fc.assert(
    fc.asyncProperty(lengths, lengths, async (there, back) => {
      const { left, right, over, held, carry } = openPair()
      const asked = there.map((length, seed) => message(length, seed))
      const answered = back.map((length, seed) => message(length, seed + 100))
      const all = Promise.all([
        sendAll(left, asked),
        sendAll(right, answered),
        readAll(left),
        readAll(right),
      ])
      await carry()
      const [, , atLeft, atRight] = await all
      expect(areSame(atRight, asked)).toBe(true)
      expect(areSame(atLeft, answered)).toBe(true)
      expect(over.sort()).toEqual(['left', 'right'])
      expect(held).toEqual({ left: 0, right: 0 })
    }),
    { numRuns: 25 },
  )
})

it('a channel ends with an error, and never with other bytes, when frames are lost, doubled or swapped', async () => {
  const fates = fc.array(fc.constantFrom('pass', 'pass', 'pass', 'lose', 'double', 'swap'), {
    minLength: 1,
    maxLength: 30,
  })
  await fc.assert(
    fc.asyncProperty(fates, lengths, async (fate, there) => {
      let count = 0
      const late: Record<Side, readonly Uint8Array[]> = { left: [], right: [] }
      let isWhole = true
      const { left, right, carry } = openPair((frame, to) => {
        const one = fate[count++] ?? 'pass'
        const before = late[to]
        late[to] = []
        if (one === 'pass') return [frame, ...before]
        isWhole = false
        if (one === 'double') return [frame, frame, ...before]
        if (one === 'swap') late[to] = [frame]
        return before
      })
      const asked = there.map((length, seed) => message(length, seed))
      const read = settled(readAll(right))
      const sent = settled(sendAll(left, asked))
      const answer = settled(Promise.all([right.end(), readAll(left)]))
      await carry()
      // What the other side reports every second, until the fault is seen.
      for (let second = 0; second < 3; second++) {
        right.check(left.sent())
        left.check(right.sent())
        await carry()
      }
      const { value, error } = await read
      if (isWhole) expect(areSame(value, asked)).toBe(true)
      if (error !== null) expect(error).toBeInstanceOf(ChannelError)
      else expect(areSame(value, asked)).toBe(true)
      for (const end of [await sent, await answer])
        if (end.error !== null) expect(end.error).toBeInstanceOf(ChannelError)
    }),
    { numRuns: 60 },
  )
})

it('a channel holds a window and a frame for a reader who reads nothing, and waits', async () => {
  const { left, right, held, carry } = openPair()
  const sending = settled(
    sendAll(
      left,
      Array.from({ length: 40 }, () => message(PART_BYTES_MAX)),
    ),
  )
  await carry()
  expect(held.right).toBeGreaterThan(WINDOW_BYTES / 2)
  expect(held.right).toBeLessThanOrEqual(WINDOW_BYTES + PART_BYTES_MAX)
  right.abort(null)
  await carry()
  expect((await sending).error).toMatchObject({ code: 'aborted' })
  expect(held).toEqual({ left: 0, right: 0 })
})

it('a channel ends when the other side sends more than it was given credit for', async () => {
  const part = (kind: number, number: number, length: number) => {
    const frame = new Uint8Array(5 + length)
    frame[0] = kind
    new DataView(frame.buffer).setUint32(1, number)
    return frame
  }
  const flood = (kind: number, length: number) => {
    const { right, held } = openPair()
    let most = 0
    for (let number = 0; number < 5_000 && !right.signal.aborted; number++) {
      right.receive(part(kind, number, length))
      most = Math.max(most, held.right)
    }
    expect(right.signal.reason).toMatchObject({ code: 'lost' })
    expect(held.right).toBe(0)
    return most
  }
  // Whole messages, empty ones, and one without an end.
  expect(flood(1, 60_000)).toBeLessThanOrEqual(WINDOW_BYTES + PART_BYTES_MAX)
  expect(flood(1, 0)).toBe(0)
  expect(flood(0, 60_000)).toBeLessThanOrEqual(WINDOW_BYTES + PART_BYTES_MAX)
  expect(flood(1, PART_BYTES_MAX + 1)).toBe(0)
})

it('a channel ends at credit that was not used, and at frames of no known form', () => {
  const frames = [
    Uint8Array.of(2, 0, 0, 0, 0, 0, 0, 0, 1),
    Uint8Array.of(2, 0, 0, 0, 0, 1),
    Uint8Array.of(9, 0, 0, 0, 0),
    Uint8Array.of(0, 0, 0, 0, 1),
    Uint8Array.of(),
    Uint8Array.of(1, 0),
  ]
  for (const frame of frames) {
    const { right, over } = openPair()
    right.receive(frame)
    expect(right.signal.reason).toBeInstanceOf(ChannelError)
    expect(over).toEqual(['right'])
  }
})

it('a channel takes no message longer than its bound, though it is read', async () => {
  const { left, right, carry } = openPair()
  const read = settled(readAll(right))
  void settled(left.send(new Uint8Array(MESSAGE_BYTES_MAX + 1)))
  await carry()
  expect((await read).error).toMatchObject({ code: 'lost' })
})

it('a channel takes an end within a message for a loss', () => {
  const { right } = openPair()
  right.receive(Uint8Array.of(0, 0, 0, 0, 0, 65))
  right.receive(Uint8Array.of(3, 0, 0, 0, 1))
  expect(right.signal.reason).toMatchObject({ code: 'lost' })
})

it('a channel gives what came before the end, though the other side is lost after it', async () => {
  const { left, right, carry } = openPair()
  await sendAll(left, [message(7)])
  await carry()
  right.lose('it stopped')
  expect(await readAll(right)).toEqual([message(7)])
  expect(right.signal.reason).toMatchObject({ code: 'lost', message: 'it stopped' })
})

it('a channel never looks whole to a reader when it was ended here', async () => {
  const { left, right, carry } = openPair()
  await sendAll(left, [message(7)])
  await carry()
  right.abort(null)
  expect((await settled(readAll(right))).error).toMatchObject({ code: 'lost' })
})

it('a channel tells the other side why it was aborted, in whatever state', async () => {
  const states: ((pair: ReturnType<typeof openPair>) => Promise<unknown>)[] = [
    async () => undefined,
    async ({ left }) => left.send(message(9)),
    async ({ left }) => left.end(),
    async ({ right }) => right.end(),
    async ({ left, carry }) => {
      void settled(left.send(message(WINDOW_BYTES * 2)))
      await carry()
    },
  ]
  for (const reach of states) {
    const pair = openPair()
    const { left, right, over, held, carry } = pair
    await reach(pair)
    await carry()
    left.abort({ code: 'no' })
    left.abort({ code: 'twice' })
    await carry()
    expect(right.signal.reason).toMatchObject({ code: 'aborted', detail: { code: 'no' } })
    expect(over.sort()).toEqual(['left', 'right'])
    expect(held).toEqual({ left: 0, right: 0 })
    await expect(left.send(message(1))).rejects.toBeInstanceOf(Error)
  }
})

it('a channel is over once both sides have ended, and what comes then changes nothing', async () => {
  const { left, right, over, carry } = openPair()
  await Promise.all([left.end(), right.end()])
  await carry()
  left.abort(null)
  left.lose('late')
  right.receive(Uint8Array.of(4, 0, 0, 0, 9))
  left.check(1_000)
  left.check(1_000)
  expect(left.signal.aborted || right.signal.aborted).toBe(false)
  expect(over).toHaveLength(2)
  await expect(left.send(message(1))).rejects.toThrow('after the end')
})

it('a channel counts small messages with the frames that they take', async () => {
  const { left, right, held, carry } = openPair()
  const many = Array.from({ length: 5_000 }, () => message(1))
  const sending = settled(sendAll(left, many))
  await carry()
  expect(held.right).toBeLessThanOrEqual(WINDOW_BYTES / FRAME_COST + 1)
  const read = readAll(right)
  await carry()
  expect(await read).toHaveLength(5_000)
  expect((await sending).error).toBeNull()
})
