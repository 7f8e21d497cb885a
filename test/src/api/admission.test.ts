import { expect, it } from 'vitest'
import {
  createAdmission,
  createMemoryBudget,
  createSharedAdmission,
  HELD_WEIGHT,
} from '#src/api/admission.ts'

const refused = expect.objectContaining({ code: 'overloaded', status: 503 })

let owners = 0
/** An owner who has no calls yet. */
const another = () => `owner ${++owners}`

it('an admission admits as many calls as allowed, and again once a call is released', () => {
  const admission = createAdmission({ callsMax: 2, bytesMax: 10 })
  const first = admission.admit(another())
  admission.admit(another())
  expect(() => admission.admit(another())).toThrow(refused)
  first.release()
  expect(() => admission.admit(another())).not.toThrow()
})

it('an admission bounds the bytes of all calls together', () => {
  const admission = createAdmission({ callsMax: 2, bytesMax: 10 })
  const [first, second] = [admission.admit(another()), admission.admit(another())]
  first.reserve(6)
  second.reserve(4)
  expect(() => second.reserve(1)).toThrow(refused)
  first.release()
  second.reserve(6)
  expect(admission.load()).toEqual({ calls: 1, bytes: 10 })
})

it('an owner of many places leaves the last eighth to those who have few', () => {
  const admission = createAdmission({ callsMax: 64, bytesMax: 0 })
  const take = (owner: string) => {
    const slot = admission.admit(owner)
    slot.enter()
    return slot
  }
  const taken = Array.from({ length: 56 }, () => take('greedy'))
  expect(() => take('greedy')).toThrow(refused)
  for (let count = 0; count < 2; count++) expect(() => take('modest')).not.toThrow()
  expect(() => take('modest')).toThrow(refused)
  for (const owner of ['a', 'b', 'c', 'd', 'e', 'f']) take(owner)
  expect(() => take('late')).toThrow(refused)
  for (const slot of taken.slice(0, 9)) slot.release()
  expect(() => take('greedy')).not.toThrow()
})

it('bodies that arrive take no place of calls that run', () => {
  const admission = createAdmission({ callsMax: 2, bytesMax: 0 })
  for (let count = 0; count < 2; count++) admission.admit(another()).enter()
  const arriving = admission.admit(another())
  expect(() => arriving.enter()).toThrow(refused)
  arriving.release()
  expect(admission.load().calls).toBe(2)
})

it('an owner holds three quarters of the bytes at most, unless by one call', () => {
  const admission = createAdmission({ callsMax: 9, bytesMax: 100 })
  const alone = admission.admit('one')
  alone.reserve(100)
  alone.release()
  admission.admit('one').reserve(50)
  const second = admission.admit('one')
  second.reserve(25)
  expect(() => second.reserve(1)).toThrow(refused)
  expect(() => admission.admit('other').reserve(25)).not.toThrow()
})

it('a shared admission bounds the calls of one owner and of all, and takes neither for the other', () => {
  const admission = createSharedAdmission({ callsMax: 3, ownerCallsMax: 2 })
  const [first, second] = [admission.admit('one'), admission.admit('one')]
  expect(() => admission.admit('one')).toThrow(refused)
  const other = admission.admit('other')
  expect(() => admission.admit('third')).toThrow(refused)
  first.release()
  first.release()
  admission.admit('one')
  expect(() => admission.admit('one')).toThrow(refused)
  other.release()
  expect(() => admission.admit('one')).toThrow(refused)
  second.release()
  admission.admit('third')
  admission.admit('third')
  expect(() => admission.admit('fourth')).toThrow(refused)
})

const KIB = 1024
/** For 800 KiB as they are held. */
const budget = () => createMemoryBudget(800 * KIB * HELD_WEIGHT)
const wide = createAdmission({ callsMax: 100, bytesMax: 2 ** 30 })

it('a memory budget bounds what slots of several admissions hold together', () => {
  const memory = budget()
  const other = createAdmission({ callsMax: 1, bytesMax: 2 ** 30 })
  const [one, two] = [memory.charge(wide, another()), memory.charge(other, another())]
  one.reserve(400 * KIB)
  expect(() => two.reserve(400 * KIB)).toThrow(refused)
  two.reserve(300 * KIB)
  one.release()
  one.release()
  expect(memory.load()).toMatchObject({ bytes: 300 * KIB * HELD_WEIGHT })
  expect(wide.load().bytes).toBe(0)
})

it('a memory budget counts what a call takes by itself, and leaves room that such calls cannot take', () => {
  const memory = createMemoryBudget(800 * KIB)
  const open = createAdmission({ callsMax: 100, bytesMax: 2 ** 30, callBytes: 100 * KIB })
  const streams = Array.from({ length: 7 }, () => memory.charge(open, another()))
  expect(() => memory.charge(open, another())).toThrow(refused)
  expect(open.load().calls).toBe(7)
  expect(memory.load().bytes).toBe(700 * KIB)
  const small = memory.charge(wide, another())
  expect(() => small.reserve(KIB)).not.toThrow()
  small.release()
  streams[0]?.release()
  streams[0]?.release()
  expect(() => memory.charge(open, another())).not.toThrow()
})

it('a memory budget keeps room for small calls that large ones cannot take', () => {
  const memory = budget()
  memory.charge(wide, another()).reserve(700 * KIB)
  expect(() => memory.charge(wide, another()).reserve(300 * KIB)).toThrow(refused)
  const small = memory.charge(wide, another())
  small.reserve(60 * KIB)
  small.reserve(40 * KIB)
  expect(() => small.reserve(1)).toThrow(refused)
})

it('a memory budget says of a call that is too large alone that to try again would not help', () => {
  const slot = budget().charge(wide, another())
  expect(() => slot.reserve(750 * KIB)).toThrow(
    expect.objectContaining({ code: 'payload_too_large', status: 413 }),
  )
})

it('a memory budget takes nothing for a call that its own admission refuses', () => {
  const memory = budget()
  const narrow = createAdmission({ callsMax: 1, bytesMax: 10 })
  expect(() => memory.charge(narrow, another()).reserve(11)).toThrow(refused)
  expect(memory.load().bytes).toBe(0)
})
