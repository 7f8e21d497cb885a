import { describe, expect, it } from 'vitest'
import {
  ANSWER_ROOM_BYTES,
  type Reservation,
  SMALL_CALL_BYTES,
  Space,
} from '#enclave/log/memory-budget.ts'

function reserve(space: Space, bytes = 0): Reservation {
  return space.reserve(bytes) ?? expect.unreachable()
}

describe('Space', () => {
  it('the memory budget refuses a call when its request and room for an answer do not fit', () => {
    const space = new Space(2 * (ANSWER_ROOM_BYTES + 100))
    expect(space.reserve(100)).not.toBe(null)
    expect(space.reserve(101)).toBe(null)
    expect(space.reserve(100)).not.toBe(null)
    expect(space.reserve(0)).toBe(null)
  })

  it('the memory budget counts an answer once it is larger than its room', () => {
    const space = new Space(1e9)
    const reservation = reserve(space, 10)
    expect(reservation.grow(ANSWER_ROOM_BYTES)).toBe(true)
    expect(space.used).toBe(10 + ANSWER_ROOM_BYTES)
    expect([reservation.grow(5), reservation.grow(6)]).toEqual([true, true])
    expect(space.used).toBe(10 + ANSWER_ROOM_BYTES + 11)
    expect(reservation.hold(ANSWER_ROOM_BYTES + 1)).toBe(true)
    expect(space.used).toBe(10 + ANSWER_ROOM_BYTES + 1)
    expect(reservation.hold(0)).toBe(true)
    expect(space.used).toBe(10 + ANSWER_ROOM_BYTES)
  })

  it('the memory budget refuses growth beyond the limit, and changes nothing then', () => {
    const space = new Space(3 * ANSWER_ROOM_BYTES)
    const [first, second] = [reserve(space), reserve(space)]
    expect(first.grow(2 * ANSWER_ROOM_BYTES)).toBe(true)
    expect(second.grow(ANSWER_ROOM_BYTES + 1)).toBe(false)
    expect(second.hold(ANSWER_ROOM_BYTES + 1)).toBe(false)
    expect(space.used).toBe(3 * ANSWER_ROOM_BYTES)
    first.release()
    expect(second.grow(ANSWER_ROOM_BYTES + 1)).toBe(true)
  })

  it('the memory budget keeps a quarter for small calls, which large ones cannot take', () => {
    const space = new Space(100 * SMALL_CALL_BYTES)
    const large = reserve(space)
    expect(large.grow(75 * SMALL_CALL_BYTES)).toBe(true)
    expect(large.grow(1)).toBe(false)
    expect(reserve(space).grow(SMALL_CALL_BYTES + 1)).toBe(false)
    expect(reserve(space).grow(SMALL_CALL_BYTES)).toBe(true)
  })

  it('the memory budget gets everything back once, however often it is released', () => {
    const space = new Space(1e9)
    const [first, second] = [reserve(space, 10), reserve(space, 20)]
    first.grow(1e6)
    first.release()
    first.release()
    expect(first.grow(1)).toBe(true)
    expect(space.used).toBe(20 + ANSWER_ROOM_BYTES)
    second.release()
    expect(space.used).toBe(0)
  })
})
