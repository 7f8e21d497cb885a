import { describe, expect, it } from 'vitest'
import { ANSWER_ROOM_BYTES, Space } from '../../../enclave/log/space.ts'

describe('Space', () => {
  it('refuses a call when request and room for an answer do not fit', () => {
    const space = new Space(2 * (ANSWER_ROOM_BYTES + 100))
    expect(space.reserve(100)).not.toBe(null)
    expect(space.reserve(101)).toBe(null)
    expect(space.reserve(100)).not.toBe(null)
    expect(space.reserve(0)).toBe(null)
  })

  it('counts an answer once it is larger than its room', () => {
    const space = new Space(1e9)
    const reservation = space.reserve(10)
    reservation?.grow(ANSWER_ROOM_BYTES)
    expect(space.used).toBe(10 + ANSWER_ROOM_BYTES)
    reservation?.grow(5)
    reservation?.grow(6)
    expect(space.used).toBe(10 + ANSWER_ROOM_BYTES + 11)
  })

  it('grows beyond the limit for a call that has begun, and refuses new ones meanwhile', () => {
    const space = new Space(3 * ANSWER_ROOM_BYTES)
    const reservation = space.reserve(0)
    reservation?.grow(10 * ANSWER_ROOM_BYTES)
    expect(space.reserve(0)).toBe(null)
    reservation?.release()
    expect(space.reserve(0)).not.toBe(null)
  })

  it('gives everything back once, however often it is released', () => {
    const space = new Space(1e9)
    const first = space.reserve(10)
    const second = space.reserve(20)
    first?.grow(1e6)
    first?.release()
    first?.release()
    expect(space.used).toBe(20 + ANSWER_ROOM_BYTES)
    second?.release()
    expect(space.used).toBe(0)
  })
})
