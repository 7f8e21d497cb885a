import { describe, expect, it } from 'vitest'
import { ANSWER_SIZE_MAX } from '#attestation/json/json-size.ts'
import { admitAnswer, StreamMemory } from '#enclave/calls/answer-memory.ts'
import { Space } from '#enclave/log/memory-budget.ts'

const tooLarge = expect.objectContaining({
  fault: expect.objectContaining({ code: 'answer_too_large', status: 502 }),
})
const MEBIBYTE = 2 ** 20

function open(bytesMax: number) {
  const space = new Space(bytesMax)
  return { space, reservation: space.reserve(0) ?? expect.unreachable() }
}

describe('admitAnswer', () => {
  it('admitAnswer takes over a hundred bytes for each object, however few bytes it is written with', () => {
    const { space, reservation } = open(1e9)
    admitAnswer(reservation, Buffer.from(`[${'{},'.repeat(1000)}0]`))
    admitAnswer(reservation, Buffer.from(`[${'{},'.repeat(10_000)}0]`))
    expect(space.used).toBeGreaterThan(1_000_000)
  })

  it('admitAnswer refuses an answer that does not fit beside others', () => {
    const { space, reservation } = open(3 * MEBIBYTE)
    const answer = Buffer.from(`[${'{},'.repeat(10_000)}0]`)
    admitAnswer(reservation, answer)
    space.add(2 * MEBIBYTE)
    expect(() => admitAnswer(reservation, Buffer.concat([answer, answer]))).toThrow(tooLarge)
  })

  it('admitAnswer refuses more objects than an answer may have, whatever room there is', () => {
    const answer = Buffer.from('{},'.repeat(ANSWER_SIZE_MAX.containers + 1))
    expect(() => admitAnswer(open(1e12).reservation, answer)).toThrow(tooLarge)
  })
})

describe('StreamMemory', () => {
  const event = '{"choices":[{"index":0,"delta":{"content":"word "}}]}'

  it('StreamMemory holds little for a long stream whose chunks replace each other', () => {
    const { space, reservation } = open(1e9)
    const assembly = new Map([['content', '']])
    const memory = new StreamMemory(reservation, () => assembly)
    for (let count = 0; count < 64_000; count++) {
      memory.admit(event)
      assembly.set('content', `${assembly.get('content')}word `)
    }
    expect(space.used).toBeLessThan(5 * MEBIBYTE)
  })

  it('StreamMemory refuses an event that does not fit, and an assembly that grows too large', () => {
    const { reservation } = open(2 * MEBIBYTE)
    const assembly: object[] = []
    const memory = new StreamMemory(reservation, () => assembly)
    expect(() => memory.admit(`{"x":[${'{},'.repeat(20_000)}0]}`)).toThrow(tooLarge)
    const fill = () => {
      for (let count = 0; count < 100_000; count++) {
        memory.admit('{"x":{}}')
        assembly.push({})
      }
    }
    expect(fill).toThrow(tooLarge)
    expect(assembly.length).toBeGreaterThan(5_000)
    expect(assembly.length).toBeLessThan(20_000)
  })

  it('StreamMemory holds the values of an input, beside the event that ends its text', () => {
    const { space, reservation } = open(1e9)
    const assembly = { text: 'x'.repeat(8 * MEBIBYTE) }
    const memory = new StreamMemory(reservation, () => assembly)
    const input = `[${'{},'.repeat(10_000)}0]`
    memory.admit(event)
    const { used } = space
    memory.admitInput(input)
    expect(space.used - used).toBeGreaterThan(1_000_000)
    memory.admit(event)
    expect(space.used - used).toBeGreaterThan(1_000_000)
    expect(() => memory.admitInput('{'.repeat(ANSWER_SIZE_MAX.containers + 1))).toThrow(tooLarge)
  })

  it('StreamMemory checks an assembly that is too large before its last event, whatever was counted', () => {
    const assembly = Array.from({ length: ANSWER_SIZE_MAX.containers - 1 }, () => ({}))
    const memory = new StreamMemory(open(1e12).reservation, () => assembly)
    expect(() => memory.checkAssembly()).not.toThrow()
    assembly.push({})
    expect(() => memory.checkAssembly()).toThrow(tooLarge)
  })

  it('StreamMemory holds bytes that wait for the end of their event, and releases them after it', () => {
    const { space, reservation } = open(30 * MEBIBYTE)
    const memory = new StreamMemory(reservation, () => [])
    memory.wait(3 * MEBIBYTE)
    expect(space.used).toBeGreaterThan(9 * MEBIBYTE)
    expect(() => memory.wait(8 * MEBIBYTE)).toThrow(tooLarge)
    memory.wait(0)
    expect(space.used).toBeLessThan(MEBIBYTE)
  })
})
