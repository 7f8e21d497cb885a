import { describe, expect, it } from 'vitest'
import { createAdmission, createMemoryBudget, HELD_WEIGHT } from '../../../src/api/admission.ts'

const refused = expect.objectContaining({ code: 'overloaded', status: 503 })

describe('createAdmission', () => {
  it('admits as many calls as allowed, and again once one is released', () => {
    const admission = createAdmission({ callsMax: 2, bytesMax: 10 })
    const first = admission.admit()
    admission.admit()
    expect(() => admission.admit()).toThrow(refused)
    first.release()
    expect(() => admission.admit()).not.toThrow()
  })

  it('bounds the bytes of all calls together', () => {
    const admission = createAdmission({ callsMax: 2, bytesMax: 10 })
    const [first, second] = [admission.admit(), admission.admit()]
    first.reserve(6)
    second.reserve(4)
    expect(() => second.reserve(1)).toThrow(refused)
    first.release()
    second.reserve(6)
    expect(admission.load()).toEqual({ calls: 1, bytes: 10 })
  })

  it('counts a release once', () => {
    const admission = createAdmission({ callsMax: 2, bytesMax: 10 })
    const slot = admission.admit()
    slot.reserve(5)
    slot.release()
    slot.release()
    expect(admission.load()).toEqual({ calls: 0, bytes: 0 })
  })
})

describe('createMemoryBudget', () => {
  const KIB = 1024
  /** For 800 KiB as they are held. */
  const budget = () => createMemoryBudget(800 * KIB * HELD_WEIGHT)
  const wide = createAdmission({ callsMax: 100, bytesMax: 2 ** 30 })

  it('bounds what slots of several admissions hold together', () => {
    const memory = budget()
    const other = createAdmission({ callsMax: 1, bytesMax: 2 ** 30 })
    const [one, two] = [memory.charge(wide.admit()), memory.charge(other.admit())]
    one.reserve(400 * KIB)
    expect(() => two.reserve(400 * KIB)).toThrow(refused)
    two.reserve(300 * KIB)
    one.release()
    one.release()
    expect(memory.load()).toMatchObject({ bytes: 300 * KIB * HELD_WEIGHT })
    expect(wide.load().bytes).toBe(0)
  })

  it('keeps room for small calls that large ones cannot take', () => {
    const memory = budget()
    memory.charge(wide.admit()).reserve(700 * KIB)
    expect(() => memory.charge(wide.admit()).reserve(300 * KIB)).toThrow(refused)
    const small = memory.charge(wide.admit())
    small.reserve(60 * KIB)
    small.reserve(40 * KIB)
    expect(() => small.reserve(1)).toThrow(refused)
  })

  it('says so of a call that would be too much alone: to try again would not help', () => {
    const slot = budget().charge(wide.admit())
    expect(() => slot.reserve(750 * KIB)).toThrow(
      expect.objectContaining({ code: 'payload_too_large', status: 413 }),
    )
  })

  it('takes nothing for a call that its own admission refuses', () => {
    const memory = budget()
    const narrow = createAdmission({ callsMax: 1, bytesMax: 10 })
    expect(() => memory.charge(narrow.admit()).reserve(11)).toThrow(refused)
    expect(memory.load().bytes).toBe(0)
  })
})
