import { describe, expect, it } from 'vitest'
import { createAdmission } from '../../../src/api/admission.ts'

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
