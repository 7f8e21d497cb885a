import { describe, expect, it } from 'vitest'
import { StartFailure, settleAll } from '../../../src/runtime/starting.ts'

describe('settleAll', () => {
  it('gives all values in order', async () => {
    expect(await settleAll([Promise.resolve(1), Promise.resolve('a')])).toEqual([1, 'a'])
  })

  it('waits for the others before it throws the one failure', async () => {
    const failure = new TypeError('no')
    let isSettled = false
    const slow = new Promise<void>((resolve) => {
      setTimeout(() => {
        isSettled = true
        resolve()
      }, 50)
    })
    await expect(settleAll([Promise.reject(failure), slow])).rejects.toBe(failure)
    expect(isSettled).toBe(true)
  })

  it('tells several failures as one', async () => {
    const failing = settleAll([
      Promise.reject(new Error('a')),
      Promise.resolve(1),
      Promise.reject(new Error('b')),
    ])
    await expect(failing).rejects.toThrow(StartFailure)
    await expect(failing).rejects.toThrow('a\nb')
  })

  it('tells a failure once that two parts share', async () => {
    const failure = new Error('shared')
    await expect(settleAll([Promise.reject(failure), Promise.reject(failure)])).rejects.toBe(failure)
  })
})
